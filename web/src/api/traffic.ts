import { begun, firstRequest, type Interval, startOf } from '../lib/traffic';
import { type ApiError, serverNow } from './client';
import { useRecord } from './hooks';

interface Period {
  since?: string;
  until?: string;
  gateway_id?: string;
  route_id?: string;
  key_id?: string;
  upstream?: string;
  target?: string;
}

interface Live {
  refetchInterval: number | false;
  staleTime?: number;
  enabled?: boolean;
}

const fine = 4 * 3600; // seconds that are shown by the minute

// useTraffic reads a traffic report. Its rows begin with the first request. By the hour, a report whose first request
// is less than four hours old is read again by the minute. seconds is the time from the first request to the end of
// the report.
export function useTraffic(period: Period, interval: Interval, live: Live) {
  const read = useRecord('/v1/reports/traffic', { query: { ...period, interval } }, { ...live, placeholderData: (old) => old });
  const end = (period.until ? Date.parse(period.until) : serverNow()) / 1000;
  const first = firstRequest(read.data?.data.data);
  const young = interval === '1h' && first !== undefined && end - startOf(first) <= fine;
  const closer = useRecord(
    '/v1/reports/traffic',
    { query: { ...period, since: first?.start, interval: '1m' } },
    { ...live, enabled: young && live.enabled !== false, placeholderData: (old) => old },
  );
  const report = young ? closer : read;
  const all = report.data?.data.data;
  const from = firstRequest(all);
  return {
    rows: all && begun(all),
    interval: young ? ('1m' as const) : interval,
    first: from && new Date(startOf(from) * 1000).toISOString(),
    seconds: from ? Math.max(end - startOf(from), 1) : 0,
    pending: report.isPending,
    error: (report.error ?? read.error) as ApiError | null,
    retry: () => void report.refetch(),
  };
}
