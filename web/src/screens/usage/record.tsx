import { Link } from '@tanstack/react-router';
import { useNames } from '../../api/names';
import { count, plural } from '../../lib/format';
import { exact } from '../../lib/time';
import { meterWords, periodWords, unitsOf, type UsageRecord } from '../../lib/usage';
import { Details, Id, Status } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { RecordLink } from '../audit/entry';

export const UsageState = ({ record }: { record: UsageRecord }) =>
  record.state === 'open' ? <Status tone="info">Open</Status> : <Status tone="ok">Final</Status>;

// UsageDialog shows everything of a record.
export function UsageDialog({ record: r, onClose }: { record: UsageRecord; onClose: () => void }) {
  const names = useNames([{ id: r.route_id, gateway_id: r.gateway_id }]);
  const units = count(r.units);
  const shown = unitsOf(r.meter, r.units);
  return (
    <Dialog
      title={`${periodWords(r)}: ${shown} ${shown === units ? meterWords(r.meter) : meterWords(r.meter).replace('bytes ', '')}`}
      wide
      onClose={onClose}>
      <Details
        rows={[
          ['Usage ID', <Id key="id" value={r.usage_id} />],
          [
            'State',
            <span key="state" className="flex flex-wrap items-center gap-2">
              <UsageState record={r} />
              <span className="text-muted">
                {r.state === 'open' ? 'The figures grow until the hour is final.' : 'This record never changes.'}
              </span>
            </span>,
          ],
          ['Sequence', Number(r.sequence) > 1 ? `${count(r.sequence)}: counted after an earlier record of this period was final` : '1'],
          ['From', exact(r.period_start)],
          ['Until', exact(r.period_end)],
          ['Owner', r.owner_id ? <RecordLink key="owner" id={r.owner_id} /> : 'none'],
          ['Key', <RecordLink key="key" id={r.key_id} />],
          ['Key prefix', <Id key="prefix" value={r.key_prefix} />],
          ['Plan', r.plan ?? 'none'],
          ['Gateway', <RecordLink key="gateway" id={r.gateway_id} />],
          [
            'Route',
            r.route_id ? (
              <Link
                key="route"
                to="/gateways/$gatewayId/routes/$routeId"
                params={{ gatewayId: r.gateway_id, routeId: r.route_id }}
                className="link font-mono text-sm break-all">
                {names.nameOf(r.route_id)}
              </Link>
            ) : (
              'not known'
            ),
          ],
          [
            'Meter',
            <code key="meter" className="font-mono text-sm">
              {r.meter}
            </code>,
          ],
          ['Units', units === shown ? units : `${units} (${shown})`],
          ['Used by', plural(r.requests, 'request')],
        ]}
      />
    </Dialog>
  );
}
