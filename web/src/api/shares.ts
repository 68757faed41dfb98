import { percent } from '../lib/format';
import { sinceOf } from '../lib/traffic';
import { addressOf } from '../lib/upstream';
import { useRecord } from './hooks';
import { useRefusal } from './session';

const most = 100; // rows of a report

// shareMeaning says what "Share, 1 h" of a target is.
export const shareMeaning = 'Share of the requests to its upstream in the last hour';

// useShares reads where the requests to an upstream were sent in the last hour. It returns a function that says the share of a
// target, by its URL. One that is not known is a dash, as before the report is read.
export function useShares(query: { gateway_id: string; upstream: string }) {
  const unread = useRefusal('read', 'reports');
  const report = useRecord(
    '/v1/reports/top',
    { query: { ...query, group_by: 'target', interval: '1m', since: sinceOf('1h'), limit: most } },
    { refetchInterval: 30_000, enabled: !unread },
  );
  const rows = report.data?.data.data;
  const sent = rows?.filter((r) => r.group !== null);
  const total = sent?.reduce((n, r) => n + Number(r.requests), 0) ?? 0;
  return (url: string): string => {
    if (total === 0 || !sent || sent.length >= most) return '–';
    return percent(sent.find((r) => r.group === addressOf(url))?.requests ?? 0, total);
  };
}
