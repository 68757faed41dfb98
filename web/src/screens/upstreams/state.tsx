import type { Target, TargetStatus } from '../../api/upstreams';
import { inFlight, inFlightWords, isOut, stateWords, worst } from '../../lib/targetstatus';
import { looksUp } from '../../lib/upstream';
import { Status } from '../../ui/basic';

// TargetState says what is special about a target. brief is for a narrow column.
export function TargetState({ target, brief }: { target: Pick<Target, 'backup' | 'drain' | 'resolve'>; brief?: boolean }) {
  return (
    <>
      {looksUp(target) && (
        <Status tone="plain">{target.resolve === 'srv' ? 'SRV records' : brief ? 'Addresses' : 'Addresses of its name'}</Status>
      )}
      {target.backup && <Status tone="plain">Backup</Status>}
      {target.drain && (
        <Status tone="warn" icon="pause">
          Draining
        </Status>
      )}
    </>
  );
}

// NodeState says in which state a node sees a target.
export function NodeState({ status }: { status: TargetStatus }) {
  return (
    <>
      <Status tone={isOut(status) ? 'bad' : status.state === 'warming' ? 'warn' : 'ok'}>{stateWords(status)}</Status>
      {status.degraded && <Status tone="warn">Degraded</Status>}
    </>
  );
}

// WorstState says in which state a target is on the node that has most to say of it, in the width of a narrow column.
export function WorstState({ list }: { list: TargetStatus[] }) {
  const status = worst(list);
  if (status === undefined) return null;
  return (
    <span className="flex flex-wrap gap-1" title={stateWords(status)}>
      <NodeState status={{ ...status, reason: null }} />
    </span>
  );
}

// NodeStates lists the state of a target, and what is in flight there, by node.
export function NodeStates({ url, list }: { url: string; list: TargetStatus[] }) {
  if (list.length === 0) return null;
  return (
    <div role="group" aria-label={`State of ${url}`} className="flex basis-full flex-wrap gap-x-6 gap-y-1 text-sm">
      {list.map((s) => (
        <span key={`${s.node} ${s.address}`} className="flex min-w-0 items-center gap-2">
          <NodeState status={s} />
          <span className="min-w-0 truncate text-muted" title={`${s.address}, ${s.requests} attempts, ${s.failures} failed`}>
            {s.node}, {inFlightWords(s.in_flight)}
          </span>
        </span>
      ))}
    </div>
  );
}

// InFlight says how many requests are in flight at a target.
export function InFlight({ list }: { list: TargetStatus[] }) {
  return <span className="text-muted tabular-nums">{list.length === 0 ? '–' : String(inFlight(list))}</span>;
}
