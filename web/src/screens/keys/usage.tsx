import { Link } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { count, short } from '../../lib/format';
import { type Range, ranges } from '../../lib/time';
import { intervalOf, isRange, refreshOf, refusals, sinceOf, startOf, sum } from '../../lib/traffic';
import { useUrl } from '../../lib/url';
import { Failure, Panel, Skeleton } from '../../ui/basic';
import { Chart } from '../../ui/chart';
import { Ranges } from '../../ui/ranges';

// KeyUsage shows the requests of one key over time.
export function KeyUsage({ keyId }: { keyId: string }) {
  const [url, change] = useUrl<'range'>();
  const range: Range = isRange(url.range) ? url.range : '24h';
  const query = useRecord(
    '/v1/reports/traffic',
    { query: { key_id: keyId, since: sinceOf(range), interval: intervalOf[range] } },
    { refetchInterval: refreshOf[range] },
  );
  const rows = query.data?.data.data;
  return (
    <Panel
      title="Usage"
      actions={
        <Ranges value={range} onChange={(r) => change({ range: r === '24h' ? undefined : r })} options={Object.keys(ranges) as Range[]} />
      }>
      {query.error ? (
        <Failure error={query.error} />
      ) : !rows ? (
        <Skeleton className="h-60 w-full" />
      ) : (
        <div className="flex flex-col gap-4">
          <dl className="flex flex-wrap gap-x-8 gap-y-2">
            {(
              [
                ['Requests', sum(rows, (r) => r.requests)],
                ['Refused', sum(rows, refusals)],
                ['Errors', sum(rows, (r) => r.status_5xx)],
              ] as const
            ).map(([name, n]) => (
              <div key={name}>
                <dt className="text-muted">{name}</dt>
                <dd className="text-xl font-semibold">{count(n)}</dd>
              </div>
            ))}
          </dl>
          <Chart
            label="Requests of the key"
            times={rows.map(startOf)}
            whole
            format={short}
            series={[
              { label: 'Requests', color: '--chart-1', values: rows.map((r) => Number(r.requests)) },
              { label: 'Refused', color: '--chart-2', values: rows.map(refusals) },
            ]}
          />
          <p>
            <Link to="/requests" search={{ key_id: keyId }} className="link">
              Refused and failed requests of this key
            </Link>
          </p>
        </div>
      )}
    </Panel>
  );
}
