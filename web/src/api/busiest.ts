import { count } from '../lib/format';
import { sinceOf } from '../lib/traffic';
import type { Schemas } from './client';
import { useRecord } from './hooks';
import { useRefusal } from './session';

const most = 100; // rows of a report

// useBusiest reads the traffic of the last hour of the 100 busiest gateways, or routes of a gateway. It returns
// a function that formats a figure of one of them, by its identifier. The figure of one that the report left
// out is not known: it is a dash, as before the report is read.
export function useBusiest(query: { group_by: 'gateway' | 'route'; gateway_id?: string }) {
  const unread = useRefusal('read', 'reports');
  const report = useRecord(
    '/v1/reports/top',
    { query: { ...query, interval: '1m', since: sinceOf('1h'), limit: most } },
    { refetchInterval: 30_000, enabled: !unread },
  );
  const rows = report.data?.data.data;
  return (id: string, figure: (row: Schemas['TopRow']) => number): string => {
    const row = rows?.find((r) => r.group === id);
    if (row) return count(figure(row));
    return rows && rows.length < most ? '0' : '–';
  };
}
