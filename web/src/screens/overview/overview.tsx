import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useHold, useList, useRecord } from '../../api/hooks';
import { refusal, useAccount } from '../../api/session';
import { count, milliseconds, percent, short } from '../../lib/format';
import { type Range, ranges } from '../../lib/time';
import { intervalOf, isRange, refreshOf, refusals, sinceOf, startOf, sum } from '../../lib/traffic';
import { useUrl } from '../../lib/url';
import { Button, Empty, Failure, Page, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { Chart, ChartSkeleton } from '../../ui/chart';
import { GatewaySelect } from '../../ui/gatewayselect';
import { Ranges } from '../../ui/ranges';
import { Table } from '../../ui/table';
import { dayAgo } from '../webhooks/health';
import { Start, StartSteps } from './start';
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
  const report = useRecord(
    '/v1/reports/traffic',
    { query: { ...period, interval } },
    { ...live, enabled: mayRead('reports'), placeholderData: (old) => old },
  );
  const rows = report.data?.data.data;

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
      {report.error && <Failure error={report.error} retry={() => void report.refetch()} />}
      {fresh && <StartSteps />}
      <Figures rows={rows} seconds={span / 1000} />
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <Panel title="Requests">
          {rows ? (
            <Chart
              label="Requests"
              times={rows.map(startOf)}
              whole
              format={short}
              onZoom={zoom}
              series={[
                { label: 'Requests', color: '--chart-1', values: rows.map((r) => Number(r.requests)) },
                { label: 'Refused', color: '--chart-2', values: rows.map(refusals) },
                { label: 'Errors', color: '--chart-4', values: rows.map((r) => Number(r.status_5xx)) },
              ]}
            />
          ) : (
            <ChartSkeleton />
          )}
        </Panel>
        <Panel title="Latency">
          {rows ? (
            <Chart
              label="Latency"
              times={rows.map(startOf)}
              format={milliseconds}
              onZoom={zoom}
              series={(['p50', 'p95', 'p99'] as const).map((p, i) => ({
                label: p,
                color: `--chart-${i + 1}`,
                values: rows.map((r) => (Number(r.requests) > 0 && r.latency_ms ? Number(r.latency_ms[p]) : null)),
              }))}
            />
          ) : (
            <ChartSkeleton />
          )}
        </Panel>
        <Top by="route" period={period} live={live} />
        <Top by="key" period={period} live={live} />
        {mayRead('webhooks') && <FailingWebhooks still={still} />}
        {mayRead('audit-log') && <Changes still={still} />}
      </div>
    </Page>
  );
}

function Figures({ rows, seconds }: { rows: Schemas['TrafficRow'][] | undefined; seconds: number }) {
  const total = rows ? sum(rows, (r) => r.requests) : 0;
  const errors = rows ? sum(rows, (r) => r.status_5xx) : 0;
  const refused = rows ? sum(rows, refusals) : 0;
  const last = rows?.findLast((r) => Number(r.requests) > 0)?.latency_ms;
  const figures = [
    { name: 'Requests', value: count(total), note: `${(total / seconds).toFixed(total / seconds < 10 ? 2 : 0)} a second` },
    { name: 'Refused', value: count(refused), note: percent(refused, total) },
    { name: 'Errors', value: count(errors), note: percent(errors, total) },
    { name: 'p50', value: last ? milliseconds(Number(last.p50)) : '–', note: 'latest' },
    { name: 'p95', value: last ? milliseconds(Number(last.p95)) : '–', note: 'latest' },
    { name: 'p99', value: last ? milliseconds(Number(last.p99)) : '–', note: 'latest' },
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
// failed in the last 24 hours.
function FailingWebhooks({ still }: { still: boolean }) {
  const every = { refetchInterval: still ? (false as const) : 60_000 };
  const hooks = useList('/v1/webhooks', { query: { limit: 100 } }, every);
  const failed = useList('/v1/webhook-deliveries', { query: { state: 'failed', since: dayAgo(), limit: 100 } }, every);
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
      className="min-h-[368px]"
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
                <Link to="/webhooks/$webhookId" params={{ webhookId: r.w.webhook_id }} className="link block truncate" title={r.w.url}>
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
            { title: 'Failed, 24 h', number: true, cell: (r) => number(r.failed) },
          ]}
        />
      )}
    </Panel>
  );
}

// Changes lists the latest changes of the configuration.
function Changes({ still }: { still: boolean }) {
  const query = useList(
    '/v1/audit-log',
    { query: { kind: 'management', outcome: 'success', limit: 25 } },
    { refetchInterval: still ? false : 30_000 },
  );
  const rows = query.data?.data.data.filter((r) => r.action).slice(0, 8);
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
          rowKey={(r) => r.request_id + r.time}
          skeletons={8}
          empty={<Empty icon="audit" title="No changes yet" />}
          columns={[
            { title: 'Change', cell: (r) => <code className="font-mono text-sm">{r.action}</code> },
            {
              title: 'Of',
              className: 'max-w-40 hidden sm:table-cell',
              cell: (r) => (
                <code className="block truncate font-mono text-sm text-muted" title={r.target ?? ''}>
                  {r.target}
                </code>
              ),
            },
            {
              title: 'By',
              className: 'hidden xl:table-cell',
              cell: (r) => <code className="font-mono text-sm">{r.key_prefix ?? '–'}</code>,
            },
            { title: 'When', number: true, cell: (r) => <Time at={r.time} /> },
          ]}
        />
      )}
    </Panel>
  );
}
