import { Link } from '@tanstack/react-router';
import { useTraffic } from '../../api/traffic';
import { count } from '../../lib/format';
import { type Range, ranges } from '../../lib/time';
import { intervalOf, isRange, refreshOf, refusals, sinceOf, sum } from '../../lib/traffic';
import { useUrl } from '../../lib/url';
import { Panel, Skeleton } from '../../ui/basic';
import { Charged } from '../../ui/charged';
import { Ranges } from '../../ui/ranges';
import { TrafficChart } from '../../ui/trafficchart';

// KeyUsage shows the requests of one key over time.
export function KeyUsage({ keyId }: { keyId: string }) {
  const [url, change] = useUrl<'range'>();
  const range: Range = isRange(url.range) ? url.range : '24h';
  const traffic = useTraffic({ key_id: keyId, since: sinceOf(range) }, intervalOf[range], { refetchInterval: refreshOf[range] });
  const rows = traffic.rows ?? [];
  return (
    <Panel
      title="Usage"
      actions={
        <Ranges value={range} onChange={(r) => change({ range: r === '24h' ? undefined : r })} options={Object.keys(ranges) as Range[]} />
      }>
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
              <dd className="text-xl font-semibold">{traffic.rows ? count(n) : <Skeleton className="h-4 w-12" />}</dd>
            </div>
          ))}
        </dl>
        <Charged rows={traffic.rows} />
        <TrafficChart label="Requests of the key" traffic={traffic} />
        <p className="flex flex-wrap gap-x-6 gap-y-1">
          <Link to="/requests" search={{ key_id: keyId }} className="link">
            Refused and failed requests of this key
          </Link>
          <Link to="/usage-records" search={{ key_id: keyId, since: '24h' }} className="link">
            Usage records of this key
          </Link>
        </p>
      </div>
    </Panel>
  );
}
