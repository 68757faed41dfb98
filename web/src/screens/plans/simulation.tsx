import { useState } from 'react';
import { useGateways } from '../../api/gateways';
import { useRefusal } from '../../api/session';
import { count, plural } from '../../lib/format';
import { isWhole, type LimitBody } from '../../lib/plan';
import { meterWords } from '../../lib/usage';
import { Failure, Panel, Skeleton } from '../../ui/basic';
import { GatewaySelect } from '../../ui/gatewayselect';
import { useSimulation } from '../gateways/simulation';

// PlanSimulation says what limits would have refused on a gateway in the last 24 hours.
export function PlanSimulation({ limits, calendar }: { limits: LimitBody[]; calendar: Record<string, unknown> }) {
  const { gateways, loaded } = useGateways();
  const [chosen, setChosen] = useState('');
  const gatewayId =
    chosen || limits.find((l) => l.gateway_id)?.gateway_id || (gateways.find((g) => g.default) ?? gateways[0])?.gateway_id || '';
  const refused = useRefusal('write', `gateways/${gatewayId}/limits`);
  const there = limits.filter((l) => !l.gateway_id || l.gateway_id === gatewayId);
  const whole = there.length > 0 && there.every(isWhole);
  const { result, error } = useSimulation(gatewayId, gatewayId && whole && !refused ? { plan: { limits: there, ...calendar } } : null);
  if (loaded && gateways.length === 0) return null;
  return (
    <Panel
      title="The last 24 hours with these limits"
      actions={<GatewaySelect aria-label="Gateway" value={gatewayId} className="w-56!" onChange={setChosen} />}>
      {refused ? (
        <p className="text-muted">{refused}</p>
      ) : !whole ? (
        <p className="text-muted">
          Give each limit a name and a rate, a quota or a number of requests in flight to see what it would have refused.
        </p>
      ) : error ? (
        error.status === 422 ? (
          <p className="text-muted">
            Give each limit a rate such as 600/min, a quota such as 100,000 a month, or a number of requests in flight such as 5, to see
            what it would have refused.
          </p>
        ) : (
          <Failure error={error} />
        )
      ) : (
        <>
          <p className="mb-3 min-h-5 text-muted">
            {result
              ? `${plural(result.requests, 'request')} of this gateway, as if every key and owner had this plan`
              : 'Replaying the last 24 hours…'}
          </p>
          <div role="status">
            <dl className="grid grid-cols-[minmax(6rem,11rem)_minmax(0,1fr)] gap-x-4 gap-y-2">
              {there.map((l) => {
                const of = result?.limits?.find((r) => r.limit === l.name);
                return (
                  <div key={l.name} className="contents">
                    <dt className="truncate font-mono text-sm" title={l.name}>
                      {l.name}
                    </dt>
                    <dd>
                      {l.concurrency !== undefined ? (
                        <span className="text-muted">cannot be simulated: how long requests took is not kept</span>
                      ) : l.meter ? (
                        <span className="text-muted">cannot be simulated: the {meterWords(l.meter)} of single requests are not kept</span>
                      ) : of ? (
                        <>
                          <b>{count(of.refused)}</b> would have been refused
                          {Number(of.unknown) > 0 && <span className="text-muted">; of {count(of.unknown)} it is not known</span>}
                        </>
                      ) : (
                        <Skeleton className="h-4 w-48" />
                      )}
                    </dd>
                  </div>
                );
              })}
            </dl>
          </div>
        </>
      )}
      {result?.incomplete_reason && <p className="mt-2 text-sm text-warn">Incomplete: {result.incomplete_reason}.</p>}
    </Panel>
  );
}
