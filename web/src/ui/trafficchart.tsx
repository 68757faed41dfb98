import type { ApiError } from '../api/client';
import { count, milliseconds, short } from '../lib/format';
import { ended, type Interval, refusals, type Row, startOf } from '../lib/traffic';
import { Failure } from './basic';
import { Chart, ChartSkeleton } from './chart';

interface Props {
  label: string;
  traffic: { rows: Row[] | undefined; interval: Interval; error: ApiError | null };
  onZoom?: (since: number, until: number) => void;
}

const lengthOf: Record<Interval, string> = { '1m': 'minute', '1h': 'hour' };

// TrafficChart draws requests over time, with those that were refused and that failed.
export function TrafficChart({ label, traffic: { rows: all, interval, error }, onZoom }: Props) {
  if (error && !all) return <Failure error={error} />;
  if (!all) return <ChartSkeleton />;
  const rows = ended(all, interval);
  return (
    <Chart
      label={label}
      unit={`requests per ${lengthOf[interval]}`}
      times={rows.map(startOf)}
      whole
      format={short}
      exact={count}
      onZoom={onZoom}
      series={[
        { label: 'Requests', color: '--chart-1', values: rows.map((r) => Number(r.requests)) },
        { label: 'Refused', color: '--chart-2', values: rows.map(refusals) },
        { label: 'Errors', color: '--chart-4', values: rows.map((r) => Number(r.status_5xx)) },
      ]}
    />
  );
}

const percentiles = ['p50', 'p95', 'p99'] as const;

// LatencyChart draws the percentiles of the time that requests took.
export function LatencyChart({ label, traffic: { rows: all, interval, error }, onZoom }: Props) {
  if (error && !all) return <Failure error={error} />;
  if (!all) return <ChartSkeleton />;
  const rows = ended(all, interval);
  return (
    <Chart
      label={label}
      unit={`milliseconds to the end of the response, by ${lengthOf[interval]}`}
      times={rows.map(startOf)}
      format={milliseconds}
      onZoom={onZoom}
      series={percentiles.map((p, i) => ({
        label: p,
        color: `--chart-${i + 1}`,
        values: rows.map((r) => (Number(r.requests) > 0 && r.latency_ms ? Number(r.latency_ms[p]) : null)),
      }))}
    />
  );
}
