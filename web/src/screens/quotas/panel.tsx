import { type ReactNode, useState } from 'react';
import type { Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { type Count, count } from '../../lib/format';
import { isUsedUp, leftWords, projectionWords, shareWords, type Usage, unitsIn, wholeOf } from '../../lib/quota';
import { exactly, isBytes, meterWords } from '../../lib/usage';
import { Button, Failure, Panel, Status, Time, useNow } from '../../ui/basic';
import { GrantUnits, ofMeter } from './grant';
import { mostGrants, resourceOf, type useQuotas } from './subject';

type Of = ReturnType<typeof useQuotas>;

// Quotas shows what a subject has used of its quotas, and what was granted to it. more says where else to look. Render it
// when it is ready.
export function Quotas({ quotas, more }: { quotas: Of; more?: ReactNode }) {
  const { of, usage } = quotas;
  const refused = useRefusal('write', `${resourceOf(of)}/grants`);
  const [granting, setGranting] = useState(false);
  const rows = usage.data?.data.data;
  return (
    <Panel
      title="Quotas"
      actions={
        rows &&
        rows.length > 0 && (
          <Button size="sm" icon="plus" why={refused} onClick={() => setGranting(true)}>
            Grant units
          </Button>
        )
      }>
      <div className="flex flex-col gap-3">
        {usage.error && <Failure error={usage.error} retry={() => void usage.refetch()} />}
        {rows?.length === 0 && <p className="text-muted">No plan has a quota that counts this {of.kind}.</p>}
        {rows && rows.length > 0 && (
          <ul aria-label="Quotas" className="flex flex-col gap-4">
            {rows.map((u) => (
              <Quota key={`${u.plan}.${u.limit}`} of={u} />
            ))}
          </ul>
        )}
        {more && <p className="text-sm text-muted">{more}</p>}
        <Grants quotas={quotas} />
      </div>
      {granting && rows && <GrantUnits of={of} quotas={rows} onClose={() => setGranting(false)} />}
    </Panel>
  );
}

function Quota({ of: u }: { of: Usage }) {
  const now = useNow();
  const projected = projectionWords(u, now);
  const show = unitsIn(u);
  const exact = (text: string) => (isBytes(u.meter) ? text : undefined); // a title for what is shown in larger units
  return (
    <li className="flex min-w-0 flex-col gap-1">
      <div className="flex flex-wrap items-baseline gap-x-3 gap-y-0.5">
        <span className="min-w-0 break-words">
          <code className="font-mono text-sm font-medium">{u.limit}</code>{' '}
          <span className="text-sm text-muted">
            of the plan {u.plan}
            {ofMeter(u)}
          </span>
        </span>
        <State of={u} />
        <span className="ml-auto whitespace-nowrap" title={exact(`${count(u.used)} of ${count(wholeOf(u))} ${meterWords(u.meter)}`)}>
          <b className="font-semibold">{show(u.used)}</b> of {show(wholeOf(u))}
        </span>
      </div>
      <Bar of={u} />
      <div className="flex flex-wrap justify-between gap-x-4 text-sm text-muted">
        <span title={exact(`${leftWords(u, count)}${granted(u, count)}`)}>
          {shareWords(u)} used, {leftWords(u)}
          {granted(u, show)}
        </span>
        <span>
          {u.window_end ? (
            <>
              resets <Time at={u.window_end} />
            </>
          ) : (
            'never resets'
          )}
          {projected && `; ${projected}`}
        </span>
      </div>
    </li>
  );
}

const granted = (u: Usage, show: (n: Count) => string): string => (Number(u.grants) > 0 ? `; ${show(u.grants)} were granted` : '');

// State says whether a quota is used up, and whether more is allowed.
const State = ({ of: u }: { of: Usage }) =>
  u.overage === 'allow' ? (
    <Status tone={isUsedUp(u) ? 'warn' : 'plain'}>{isUsedUp(u) ? 'Used up, more is allowed' : 'More is allowed'}</Status>
  ) : isUsedUp(u) ? (
    <Status tone="bad">Used up</Status>
  ) : null;

const near = 0.8; // of a quota

// Bar shows how much of a quota is used.
export function Bar({ of: u }: { of: Usage }) {
  const share = Math.min(1, Number(u.used) / Number(wholeOf(u)));
  const colour = share < near ? 'bg-accent' : isUsedUp(u) && u.overage === 'refuse' ? 'bg-bad' : 'bg-warn';
  return (
    <div
      role="meter"
      aria-label={`Used of ${u.limit}`}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.floor(share * 100)}
      aria-valuetext={`${unitsIn(u)(u.used)} of ${unitsIn(u)(wholeOf(u))}${ofMeter(u)}`}
      className="h-2 overflow-hidden rounded-full bg-line">
      <div className={`h-full rounded-full ${colour}`} style={{ width: `${share * 100}%` }} />
    </div>
  );
}

// Grants lists the newest grants, or all of them.
function Grants({ quotas: { grants, all, showAll } }: { quotas: Of }) {
  const page = grants.data?.data;
  if (grants.error) return <Failure error={grants.error} retry={() => void grants.refetch()} />;
  if (!page || page.data.length === 0) return null;
  return (
    <section className="flex flex-col gap-2 border-t border-line pt-3">
      <h3 className="font-medium">Grants</h3>
      <ul aria-label="Grants" className="flex flex-col gap-1">
        {page.data.map((g) => (
          <Grant key={g.grant_id} of={g} />
        ))}
      </ul>
      {page.next_cursor &&
        (all ? (
          <p className="text-sm text-muted">Older grants than these {mostGrants} are not shown.</p>
        ) : (
          <div>
            <Button size="sm" onClick={showAll}>
              Show all grants
            </Button>
          </div>
        ))}
    </section>
  );
}

const Grant = ({ of: g }: { of: Schemas['Grant'] }) => (
  <li className="flex flex-wrap items-baseline gap-x-2">
    <span>
      <b className="font-medium">+{exactly(g.meter, g.units)}</b> <code className="font-mono text-sm">{g.limit}</code>
    </span>
    {g.reason && (
      <span className="min-w-0 break-words">
        <bdi>{g.reason}</bdi>
      </span>
    )}
    <span className="ml-auto text-sm text-muted">
      <Time at={g.created_at} />, {g.window_end ? <WindowEnd at={g.window_end} /> : 'for good'}
    </span>
  </li>
);

// WindowEnd says when what was granted ends, or has ended.
function WindowEnd({ at }: { at: string }) {
  const ended = Date.parse(at) <= useNow();
  return (
    <>
      {ended ? 'ended' : 'ends'} <Time at={at} />
    </>
  );
}
