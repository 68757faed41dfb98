import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useHold, useList } from '../../api/hooks';
import { type Ref, useNames } from '../../api/names';
import { refusal, useAccount } from '../../api/session';
import { useTraffic } from '../../api/traffic';
import { count, milliseconds, percent } from '../../lib/format';
import { minuteOf, type Range, ranges, zone } from '../../lib/time';
import { type Interval, intervalOf, isRange, rate, refreshOf, refusals, type Row, sinceOf, sum } from '../../lib/traffic';
import { useUrl } from '../../lib/url';
import { Button, Empty, Failure, Page, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { Charged } from '../../ui/charged';
import { GatewaySelect } from '../../ui/gatewayselect';
import { Ranges } from '../../ui/ranges';
import { Table } from '../../ui/table';
import { LatencyChart, TrafficChart } from '../../ui/trafficchart';
import { Start, StartSteps } from './start';
import { Thresholds } from './thresholds';
import { Top } from './top';

// Overview is the state of the last minutes to days: traffic, refusals, errors, latency, what is used most,
// and what changed.
export default function Overview() {
  const [url, change] = useUrl<'range' | 'since' | 'until' | 'gateway_id'>();
  const scope = useAccount()?.key.scope ?? '';
  const [paused, setPaused] = useState(false);
  const { gateways, loaded } = useGateways();
  const zoomed = Date.parse(url.since ?? '') < Date.parse(url.until ?? ''); // also false if one is not a time
  const range: Range = isRange(url.range) ? url.range : '1h';
  const since = zoomed ? url.since : sinceOf(range);
  const span = zoomed ? Date.parse(url.until ?? '') - Date.parse(url.since ?? '') : ranges[range] * 1000;
  const interval = zoomed ? (span <= 4 * 3_600_000 ? '1m' : '1h') : intervalOf[range];
  const period = { since, until: zoomed ? url.until : undefined, gateway_id: url.gateway_id };
  const still = paused || zoomed;
  useHold(still);
  const live = { refetchInterval: still ? (false as const) : refreshOf[range], staleTime: paused ? Infinity : 5_000 };
  const mayRead = (path: string) => refusal(scope, 'read', path) === null;
  const traffic = useTraffic(period, interval, { ...live, enabled: mayRead('reports') });
  const { rows } = traffic;
  const known = !traffic.error || rows !== undefined; // what is not known is said once, and not shown as being read
  const late = Date.parse(traffic.first ?? '') - Date.parse(since ?? '') > 120_000;

  if (loaded && gateways.length === 0) return <Start />;
  // Until there is traffic, the first steps may not be done.
  const fresh = gateways.length === 1 && rows !== undefined && sum(rows, (r) => r.status_2xx) === 0;
  const zoom = (from: number, to: number) => {
    const step = to - from > 4 * 3600 ? 3600 : 60;
    change({
      since: new Date(Math.floor(from / step) * step * 1000).toISOString(),
      until: new Date(Math.ceil(to / step) * step * 1000).toISOString(),
    });
  };
  return (
    <Page
      title="Overview"
      actions={
        <>
          {gateways.length !== 1 && (
            <GatewaySelect
              aria-label="Gateway"
              value={url.gateway_id ?? ''}
              none="All gateways"
              onChange={(id) => change({ gateway_id: id || undefined })}
              className="w-44!"
            />
          )}
          {zoomed && (
            <Button icon="cross" onClick={() => change({ since: undefined, until: undefined })}>
              End the zoom
            </Button>
          )}
          <Ranges
            value={zoomed ? '' : range}
            options={Object.keys(ranges) as Range[]}
            onChange={(r) => change({ range: r === '1h' ? undefined : r, since: undefined, until: undefined })}
          />
          <Button icon={paused ? 'play' : 'pause'} aria-pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? 'Resume' : 'Pause'}
          </Button>
        </>
      }>
      {!mayRead('reports') && <Failure error={refusal(scope, 'read', 'reports')} />}
      {traffic.error && <Failure error={traffic.error} retry={traffic.retry} />}
      {fresh && <StartSteps />}
      <p className="-mt-2 text-muted">{spanText(zoomed ? { since, until: url.until } : range, late ? traffic.first : undefined)}</p>
      {known && <Figures rows={rows} seconds={traffic.seconds} interval={traffic.interval} />}
      <Charged rows={rows} />
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        {known && (
          <>
            <Panel title="Requests">
              <TrafficChart label="Requests" traffic={traffic} onZoom={zoom} />
            </Panel>
            <Panel title="Latency">
              <LatencyChart label="Latency" traffic={traffic} onZoom={zoom} />
            </Panel>
          </>
        )}
        <Top by="route" period={period} live={live} />
        <Top by="key" period={period} live={live} />
        <Top by="target" period={period} live={live} />
        <Top by="subject" period={period} live={live} />
        {mayRead('webhooks') && <FailingWebhooks still={still} period={period} />}
        {mayRead('audit-log') && <Changes still={still} />}
        {mayRead('events') && <Thresholds still={still} />}
      </div>
    </Page>
  );
}

const rangeText: Record<Range, string> = {
  '15m': 'The last 15 minutes',
  '1h': 'The last hour',
  '24h': 'The last 24 hours',
  '7d': 'The last 7 days',
};

// spanText says which time the screen is about, and where in it the requests begin.
function spanText(span: Range | { since?: string; until?: string }, first: string | undefined): string {
  const at = (iso: string | undefined) => minuteOf(Date.parse(iso ?? '') / 1000);
  const time = typeof span === 'string' ? rangeText[span] : `From ${at(span.since)} to ${at(span.until)}`;
  return first ? `${time}. The first request in it came at ${at(first)} ${zone(Date.parse(first) / 1000)}.` : `${time}.`;
}

// Figures are the numbers of the whole time. Percentiles cannot be added up, so the highest of them is shown.
function Figures({ rows, seconds, interval }: { rows: Row[] | undefined; seconds: number; interval: Interval }) {
  const total = rows ? sum(rows, (r) => r.requests) : 0;
  const errors = rows ? sum(rows, (r) => r.status_5xx) : 0;
  const refused = rows ? sum(rows, refusals) : 0;
  const highest = (p: 'p50' | 'p95' | 'p99') =>
    total === 0 ? '–' : milliseconds(Math.max(0, ...(rows ?? []).map((r) => Number(r.latency_ms?.[p] ?? 0))));
  const note = `highest of a${interval === '1m' ? ' minute' : 'n hour'}`;
  const figures = [
    { name: 'Requests', value: count(total), note: rate(total, seconds) },
    { name: 'Refused', value: count(refused), note: percent(refused, total) },
    { name: 'Errors', value: count(errors), note: percent(errors, total) },
    { name: 'p50', value: highest('p50'), note },
    { name: 'p95', value: highest('p95'), note },
    { name: 'p99', value: highest('p99'), note },
  ];
  return (
    <dl className="grid grid-cols-2 gap-px overflow-hidden rounded-lg border border-line bg-line sm:grid-cols-3 lg:grid-cols-6">
      {figures.map((f) => (
        <div key={f.name} className="bg-surface px-4 py-3">
          <dt className="text-muted">{f.name}</dt>
          <dd className="text-xl font-semibold">{rows ? f.value : <Skeleton className="h-4 w-16" />}</dd>
          <dd className="text-sm text-muted">{rows ? f.note : '\u00a0'}</dd>
        </div>
      ))}
    </dl>
  );
}

// FailingWebhooks lists endpoints that are disabled, that have deliveries waiting for a retry, or whose deliveries
// failed in the time of the screen.
function FailingWebhooks({ still, period: { since, until } }: { still: boolean; period: { since?: string; until?: string } }) {
  const every = { refetchInterval: still ? (false as const) : 60_000 };
  const hooks = useList('/v1/webhooks', { query: { limit: 100 } }, every);
  const failed = useList('/v1/webhook-deliveries', { query: { state: 'failed', since, until, limit: 100 } }, every);
  const retried = useList('/v1/webhook-deliveries', { query: { state: 'retry_scheduled', limit: 100 } }, every);
  const endpoints = hooks.data?.data.data;
  const of = (list: typeof failed, id: string) => list.data?.data.data.filter((d) => d.webhook_id === id).length ?? 0;
  const rows =
    endpoints && failed.data && retried.data
      ? endpoints
          .map((w) => ({ w, failed: of(failed, w.webhook_id), retried: of(retried, w.webhook_id) }))
          .filter((r) => r.failed + r.retried > 0 || r.w.state === 'disabled')
      : undefined;
  const error = hooks.error ?? failed.error ?? retried.error;
  const number = (n: number) => (n >= 100 ? '100 or more' : count(n));
  return (
    <Panel
      flush
      className="lg:min-h-[368px]"
      title="Failing webhooks"
      actions={
        <Link to="/webhooks" className="link">
          All webhooks
        </Link>
      }>
      {error ? (
        <div className="p-4">
          <Failure error={error} />
        </div>
      ) : (
        <Table
          label="Failing webhooks"
          rows={rows}
          rowKey={(r) => r.w.webhook_id}
          skeletons={2}
          empty={<Empty icon="check" title="No endpoint is failing" />}
          columns={[
            {
              title: 'Endpoint',
              className: 'w-full max-w-0',
              cell: (r) => (
                <Link
                  to="/webhooks/$webhookId"
                  params={{ webhookId: r.w.webhook_id }}
                  className="row-link link block truncate"
                  title={r.w.url}>
                  {r.w.url}
                </Link>
              ),
            },
            {
              title: 'State',
              className: 'hidden sm:table-cell',
              cell: (r) =>
                r.w.state === 'disabled' ? (
                  <Status tone="bad" icon="stop">
                    Disabled
                  </Status>
                ) : (
                  <Status tone="warn">Failing</Status>
                ),
            },
            { title: 'Retrying', number: true, cell: (r) => number(r.retried) },
            { title: 'Failed', number: true, cell: (r) => number(r.failed) },
          ]}
        />
      )}
    </Panel>
  );
}

type Entry = Schemas['AuditEntry'];

// targetOf names what a change was about. The gateway of a route is in the path of the call.
const targetOf = (e: Entry): Ref => ({ id: e.target, gateway_id: /^\/v1\/gateways\/(gw_[0-9a-z]{26})/.exec(e.path)?.[1] });

// nameThen is the name that a record had when it was changed. A record that was deleted has no other.
function nameThen(e: Entry): string | undefined {
  const [before, after] = e.diff?.name ?? [];
  const name = after ?? before;
  return typeof name === 'string' ? name : undefined;
}

// Changes lists the latest changes of the configuration.
function Changes({ still }: { still: boolean }) {
  const query = useList(
    '/v1/audit-log',
    { query: { kind: 'management', outcome: 'success', limit: 25 } },
    { refetchInterval: still ? false : 30_000 },
  );
  const rows = query.data?.data.data.filter((r) => r.action).slice(0, 8);
  const { nameOf, known } = useNames((rows ?? []).flatMap((r) => [targetOf(r), { id: r.actor_key_id }]));
  const targetName = (r: Entry) => (r.target && known(r.target) ? nameOf(r.target) : (nameThen(r) ?? r.target ?? '–'));
  const actorName = (r: Entry) =>
    r.actor_key_id ? (known(r.actor_key_id) ? nameOf(r.actor_key_id) : (r.key_prefix ?? '–')) : 'the server';
  return (
    <Panel
      flush
      className="min-h-[368px]"
      title="Latest changes"
      actions={
        <Link to="/audit" search={{ kind: 'management' }} className="link">
          Audit log
        </Link>
      }>
      {query.error ? (
        <div className="p-4">
          <Failure error={query.error} />
        </div>
      ) : (
        <Table
          label="Latest changes"
          rows={rows}
          rowKey={(r) => `${r.time} ${r.request_id} ${r.action} ${r.target}`}
          skeletons={8}
          empty={<Empty icon="audit" title="No changes yet" />}
          columns={[
            {
              title: 'Change',
              className: 'w-full max-w-0',
              cell: (r) => (
                <div className="grid grid-cols-[minmax(0,1fr)] items-baseline gap-x-4 wrap-anywhere @2xl:grid-cols-[13rem_minmax(0,1fr)]">
                  <Link
                    to="/audit"
                    search={{ kind: 'management', since: r.time, until: new Date(Date.parse(r.time) + 1).toISOString() }}
                    className="row-link link font-mono text-sm">
                    {r.action}
                  </Link>
                  <span title={r.target ?? undefined}>
                    <bdi>{targetName(r)}</bdi>
                  </span>
                </div>
              ),
            },
            {
              title: 'By',
              className: 'w-28 max-w-28 min-w-28 hidden sm:table-cell', // its names come later
              cell: (r) => (
                <span className="block truncate text-muted" title={[actorName(r), r.actor_key_id].filter(Boolean).join('\n')}>
                  <bdi>{actorName(r)}</bdi>
                </span>
              ),
            },
            { title: 'When', number: true, cell: (r) => <Time at={r.time} /> },
          ]}
        />
      )}
    </Panel>
  );
}
