import { Link, useParams } from '@tanstack/react-router';
import type { Answer } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { refusal, useAccount } from '../../api/session';
import { shareMeaning, useShares } from '../../api/shares';
import { useTraffic } from '../../api/traffic';
import { type Target, type Upstream, useUpstream } from '../../api/upstreams';
import { count, milliseconds, percent } from '../../lib/format';
import { inFlight, leftWords, statusOf } from '../../lib/targetstatus';
import { ranges, type Range } from '../../lib/time';
import { intervalOf, isRange, rate, refreshOf, sinceOf, sum } from '../../lib/traffic';
import { addressOf } from '../../lib/upstream';
import { useUrl } from '../../lib/url';
import { Details, Empty, Failure, Panel, Skeleton } from '../../ui/basic';
import { Ranges } from '../../ui/ranges';
import { LatencyChart, TrafficChart } from '../../ui/trafficchart';
import { NodeTable, TargetState, WorstState } from './state';
import { DrainAndReturn } from './targets';

// TargetPage shows one target of an upstream, which is in the URL (url), and its traffic.
export default function TargetPage() {
  const { gatewayId, upstream } = useParams({ from: '/gateways/$gatewayId/upstreams/$upstream/target' });
  const [{ url = '' }] = useUrl<'url'>();
  const query = useUpstream(gatewayId, upstream);
  const target = query.data?.data.targets.find((t) => t.url === url);
  if (!query.data)
    return query.error ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Skeleton className="h-96 w-full" />;
  return (
    <>
      {query.error && <Failure error={query.error} />}
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 font-mono text-lg font-semibold break-all">{url}</h2>
        {target && <TargetState target={target} />}
        {target && <WorstState list={statusOf(query.data.data, url)} />}
        {target && (
          <span className="ml-auto flex gap-2">
            <DrainAndReturn gatewayId={gatewayId} answer={query.data} target={target} />
          </span>
        )}
      </div>
      {target ? (
        <>
          <TargetService gatewayId={gatewayId} answer={query.data} target={target} />
          <TargetTraffic key={url} gatewayId={gatewayId} upstream={upstream} target={target} />
        </>
      ) : (
        <Empty icon="external" title="It is not a target of this upstream any more">
          <Link to="/gateways/$gatewayId/upstreams/$upstream" params={{ gatewayId, upstream }} className="link">
            Targets of {upstream}
          </Link>
        </Empty>
      )}
    </>
  );
}

// TargetService shows the state of a target on each node and, while it drains, what is left there.
function TargetService({ gatewayId, answer, target }: { gatewayId: string; answer: Answer<Upstream>; target: Target }) {
  const gateway = useRecord('/v1/gateways/{gateway_id}', { path: { gateway_id: gatewayId } }, { enabled: target.drain });
  const list = statusOf(answer.data, target.url);
  return (
    <Panel flush title="State">
      {target.drain && (
        <p role="status" className="border-b border-line px-4 py-2">
          It gets no more requests, and has {leftWords(list)}.
          {inFlight(list) > 0
            ? ` What is left ends within the gateway’s drain timeout, ${gateway.data?.data.drain_timeout ?? '…'}.`
            : ' It can be stopped.'}
        </p>
      )}
      <NodeTable url={target.url} list={list} />
    </Panel>
  );
}

// TargetTraffic shows the requests that were sent to a target of an upstream, and how it responded.
function TargetTraffic({ gatewayId, upstream, target }: { gatewayId: string; upstream: string; target: Target }) {
  const [url, change] = useUrl<'range'>();
  const range: Range = isRange(url.range) ? url.range : '1h';
  const unread = refusal(useAccount()?.key.scope ?? '', 'read', 'reports');
  const traffic = useTraffic({ gateway_id: gatewayId, upstream, target: addressOf(target.url), since: sinceOf(range) }, intervalOf[range], {
    refetchInterval: refreshOf[range],
    enabled: !unread,
  });
  const share = useShares({ gateway_id: gatewayId, upstream });
  const { rows } = traffic;
  const total = rows ? sum(rows, (r) => r.requests) : 0;
  const errors = rows ? sum(rows, (r) => r.upstream_errors) : 0;
  const p95 = Math.max(0, ...(rows ?? []).map((r) => Number(r.latency_ms?.p95 ?? 0)));
  const known = (text: string) => (rows ? text : '–');
  return (
    <>
      <div className="flex justify-end">
        <Ranges
          value={range}
          options={Object.keys(ranges) as Range[]}
          onChange={(r) => change({ range: r === '1h' ? undefined : r }, true)}
        />
      </div>
      {unread && <Failure error={unread} />}
      {traffic.error && <Failure error={traffic.error} retry={traffic.retry} />}
      <Panel title="Traffic">
        <Details
          rows={[
            ['Weight', String(target.weight)],
            [
              <span key="s" title={shareMeaning}>
                Share, 1 h
              </span>,
              share(target.url),
            ],
            ['Requests', known(`${count(total)}, ${rate(total, traffic.seconds)}`)],
            ['Errors', known(`${count(errors)}${errors > 0 ? `, ${percent(errors, total)}` : ''}`)],
            [`Highest p95 of a${traffic.interval === '1m' ? ' minute' : 'n hour'}`, p95 > 0 ? milliseconds(p95) : '–'],
          ]}
        />
      </Panel>
      {!unread && (
        <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
          <Panel title="Requests">
            <TrafficChart label="Requests to the target" traffic={traffic} />
          </Panel>
          <Panel title="Latency">
            <LatencyChart label="Latency of the target" traffic={traffic} />
          </Panel>
        </div>
      )}
    </>
  );
}
