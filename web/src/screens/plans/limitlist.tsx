import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useGateways } from '../../api/gateways';
import { useNames } from '../../api/names';
import type { Plan } from '../../api/plans';
import { amountOf } from '../../lib/plan';
import { quotaNotes } from '../../lib/quota';

interface Line {
  limit: Plan['limits'][number];
  gatewayId: string | null; // where it applies; null for all gateways
  from?: ReactNode; // where it comes from
}

// LimitList shows limits of plans: how much, what is counted together, and where.
export function LimitList({ label, lines }: { label: string; lines: Line[] }) {
  const { nameOf, loaded } = useGateways();
  const others = useNames(
    loaded ? lines.filter((l) => l.gatewayId && nameOf(l.gatewayId) === l.gatewayId).map((l) => ({ id: l.gatewayId })) : [],
  );
  return (
    <ul aria-label={label} className="flex flex-col divide-y divide-line">
      {lines.map(({ limit, gatewayId, from }, i) => (
        <li
          key={i}
          className="grid items-baseline gap-x-4 gap-y-0.5 py-2 first:pt-0 last:pb-0 sm:grid-cols-[minmax(6rem,11rem)_minmax(0,1fr)]">
          <code className="min-w-0 truncate font-mono text-sm font-medium" title={limit.name}>
            {limit.name}
          </code>
          <div className="min-w-0">
            <p>
              <b className="font-medium">{amountOf(limit)}</b>,{' '}
              {[limit.per === 'owner' ? 'all keys of an owner together' : 'each key on its own', ...quotaNotes(limit)].join('; ')}
            </p>
            <p className="text-sm break-words text-muted">
              {gatewayId ? (
                <>
                  on{' '}
                  <Link to="/gateways/$gatewayId" params={{ gatewayId }} className="link">
                    <bdi>{nameOf(gatewayId) === gatewayId ? others.nameOf(gatewayId) : nameOf(gatewayId)}</bdi>
                  </Link>
                  {limit.routes.length > 0 && (
                    <>
                      : <code className="font-mono text-sm break-all">{limit.routes.join(', ')}</code>
                    </>
                  )}
                </>
              ) : (
                'on all gateways'
              )}
              {from && <> · {from}</>}
            </p>
          </div>
        </li>
      ))}
    </ul>
  );
}
