import { api, type Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { plural } from '../../lib/format';
import { sinceOf, sum } from '../../lib/traffic';
import { AsCode } from '../../ui/ascode';
import { ConfirmDialog } from '../../ui/dialog';
import { RouteName } from '../../ui/routename';
import { toast } from '../../ui/toast';

const shown = 8; // routes

// RevokeKey says what used the key in the last 24 hours before it is revoked.
export function RevokeKey({ record, onClose }: { record: Schemas['Key']; onClose: () => void }) {
  const run = async () => {
    await api.delete('/v1/keys/{key_id}', { path: { key_id: record.key_id } });
    toast(`Key “${record.name}” is revoked`);
    await changed('/v1/keys');
  };
  return (
    <ConfirmDialog title="Revoke the key" action="Revoke the key" onClose={onClose} run={run}>
      <p>
        The key <b>{record.name}</b> (<code className="font-mono">{record.key_prefix}</code>
        {record.owner && (
          <>
            , owner <bdi>{record.owner}</bdi>
          </>
        )}
        ) is refused from the moment this succeeds. This cannot be undone.
      </p>
      {record.level === 'gateway' ? <Users keyId={record.key_id} /> : <p>Sessions of the dashboard that were begun with it end at once.</p>}
      <div>
        <AsCode command={{ cli: `keygate keys revoke ${record.key_id}`, method: 'DELETE', path: `/v1/keys/${record.key_id}` }} />
      </div>
    </ConfirmDialog>
  );
}

// Users lists the routes that were called with a key in the last 24 hours.
function Users({ keyId }: { keyId: string }) {
  const { nameOf } = useGateways();
  const unread = useRefusal('read', 'reports');
  const period = { key_id: keyId, since: sinceOf('24h'), interval: '1h' };
  const all = useRecord('/v1/reports/traffic', { query: period }, { enabled: !unread });
  const top = useRecord('/v1/reports/top', { query: { ...period, group_by: 'route', limit: shown } }, { enabled: !unread });
  if (unread) return <p className="text-warn">What used it in the last 24 hours is not shown. {unread}</p>;
  const failed = all.error ?? top.error;
  if (failed)
    return (
      <p role="alert" className="text-warn">
        What used it in the last 24 hours cannot be shown: {failed.message}
      </p>
    );
  if (!all.data || !top.data)
    return (
      <p aria-live="polite" className="text-muted">
        Looking up what used it…
      </p>
    );
  const rows = top.data.data.data.filter((r) => Number(r.requests) > 0);
  const listed = rows.reduce((n, r) => n + Number(r.requests), 0);
  // The two reports are some milliseconds apart.
  const total =
    rows.length < shown
      ? listed
      : Math.max(
          listed,
          sum(all.data.data.data, (r) => r.requests),
        );
  if (total === 0) return <p aria-live="polite">It was not used in the last 24 hours.</p>;
  const rest = total - listed;
  return (
    <div aria-live="polite" className="flex flex-col gap-1">
      <p>In the last 24 hours it made {plural(total, 'request')}:</p>
      <ul className="flex flex-col gap-1">
        {rows.map((r) => (
          <li key={`${r.gateway_id} ${r.group}`} className="flex min-w-0 items-baseline gap-2">
            <span className="shrink-0">{plural(Number(r.requests), 'request')} to</span>
            <span className="min-w-0">{r.group ? <RouteName row={r} /> : <span className="text-muted">no route</span>}</span>
            {r.gateway_id && (
              <span className="min-w-0 truncate text-muted" title={nameOf(r.gateway_id)}>
                of <bdi>{nameOf(r.gateway_id)}</bdi>
              </span>
            )}
          </li>
        ))}
        {rest > 0 && <li className="text-muted">{plural(rest, 'request')} to other routes</li>}
      </ul>
    </div>
  );
}
