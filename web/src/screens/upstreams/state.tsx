import { serverNow } from '../../api/client';
import { type Target, type TargetStatus, type Upstream, useUpstream } from '../../api/upstreams';
import { count } from '../../lib/format';
import { inFlight, inFlightWords, isOut, serviceOf, stateWords, worst } from '../../lib/targetstatus';
import { looksUp } from '../../lib/upstream';
import { Moment, Status, Time } from '../../ui/basic';
import { Table } from '../../ui/table';

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

// NodeState says in which state a node sees a target, and from when until when, unless it is healthy.
export function NodeState({ status, brief }: { status: TargetStatus; brief?: boolean }) {
  const said = brief ? { ...status, reason: null } : status;
  return (
    <>
      <Status tone={isOut(status) ? 'bad' : status.state === 'warming' ? 'warn' : 'ok'}>{stateWords(said)}</Status>
      {status.degraded && <Status tone="warn">Degraded</Status>}
      {status.state !== 'healthy' && (
        <span className="text-sm text-muted">
          since <Moment at={status.since} />
          {status.until !== null && (
            <>
              {' '}
              {Date.parse(status.until) > serverNow() ? (
                <>
                  until <Moment at={status.until} />
                </>
              ) : (
                '(tried again)'
              )}
            </>
          )}
        </span>
      )}
    </>
  );
}

// WorstState says in which state a target is on the node that has most to say of it, in the width of a narrow column.
export function WorstState({ list }: { list: TargetStatus[] }) {
  const status = worst(list);
  if (status === undefined) return null;
  return (
    <span className="flex flex-wrap gap-x-2 gap-y-1" title={stateWords(status)}>
      <NodeState status={status} brief />
    </span>
  );
}

// NodeStates lists the state of a target, and what is in flight there, by node.
export function NodeStates({ url, list }: { url: string; list: TargetStatus[] }) {
  if (list.length === 0) return null;
  return (
    <div role="group" aria-label={`State of ${url}`} className="flex basis-full flex-wrap gap-x-6 gap-y-1 text-sm">
      {list.map((s) => (
        <span key={`${s.node} ${s.address}`} className="flex min-w-0 flex-wrap items-center gap-x-2 gap-y-1">
          <NodeState status={s} />
          <span className="min-w-0 truncate text-muted" title={`${s.address}, ${s.requests} attempts, ${s.failures} failed`}>
            {s.node}, {inFlightWords(s.in_flight)}
          </span>
        </span>
      ))}
    </div>
  );
}

// NodeTable is NodeStates with everything that nodes report.
export function NodeTable({ url, list }: { url: string; list: TargetStatus[] }) {
  const several = new Set(list.map((s) => s.address)).size > 1;
  return (
    <Table
      plain
      label={`State of ${url}`}
      rows={list}
      rowKey={(s) => `${s.node} ${s.address}`}
      empty={<p className="p-4 text-muted">No node has reported its state yet.</p>}
      columns={[
        {
          title: 'Node',
          className: 'max-w-28 @2xl:max-w-48',
          cell: (s) => (
            <>
              <span className="block truncate" title={s.node}>
                {s.node}
              </span>
              {several && (
                <code className="block truncate font-mono text-sm text-muted" title={s.address}>
                  {s.address}
                </code>
              )}
            </>
          ),
        },
        {
          title: 'State',
          className: 'w-full',
          cell: (s) => (
            <span className="flex flex-wrap items-center gap-x-2 gap-y-1 [&>span]:h-auto [&>span]:break-all [&>span]:whitespace-normal">
              <NodeState status={s} />
            </span>
          ),
        },
        { title: 'Last check', className: 'hidden @lg:table-cell', cell: (s) => <Time at={s.last_check} /> },
        { title: 'In flight', number: true, className: 'hidden @sm:table-cell', cell: (s) => count(s.in_flight) },
        { title: 'Attempts', number: true, className: 'hidden @sm:table-cell', cell: (s) => count(s.requests) },
        { title: 'Failed', number: true, className: 'hidden @sm:table-cell', cell: (s) => count(s.failures) },
      ]}
    />
  );
}

// InFlight says how many requests are in flight at a target.
export function InFlight({ list }: { list: TargetStatus[] }) {
  return <span className="text-muted tabular-nums">{list.length === 0 ? '–' : String(inFlight(list))}</span>;
}

// InService says how many targets of an upstream are in service, and what of the others is known.
export function InService({ gatewayId, upstream }: { gatewayId: string; upstream: Upstream }) {
  const query = useUpstream(gatewayId, upstream.name, 30_000);
  const { serving, words, others } = serviceOf(query.data?.data ?? upstream);
  const some = serving > 0;
  return (
    <span className={`flex flex-wrap items-center gap-x-2 gap-y-1 ${query.data || query.error ? '' : 'invisible'}`}>
      <Status tone={!some ? 'bad' : others.length > 0 ? 'warn' : 'ok'}>{words}</Status>
      {others.length > 0 && <span className="text-sm text-muted">{others.join(', ')}</span>}
    </span>
  );
}
