import { api, type Schemas } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { plural } from '../../lib/format';
import { sinceOf, sum } from '../../lib/traffic';
import { ConfirmDialog } from '../../ui/dialog';
import { toast } from '../../ui/toast';
import { useGateways } from '../../api/gateways';

// RevokeKey says what used the key in the last 24 hours before it is revoked.
export function RevokeKey({ record, onClose }: { record: Schemas['Key']; onClose: () => void }) {
  const { nameOf } = useGateways();
  const query = useRecord('/v1/reports/traffic', { query: { key_id: record.key_id, since: sinceOf('24h'), interval: '1h', group_by: 'gateway' } }, { enabled: record.level === 'gateway' });
  const rows = query.data?.data.data;
  const used = new Map<string, number>();
  for (const r of rows ?? []) if (r.group && Number(r.requests) > 0) used.set(r.group, (used.get(r.group) ?? 0) + Number(r.requests));
  const total = rows ? sum(rows, (r) => r.requests) : 0;
  const run = async () => {
    await api.delete('/v1/keys/{key_id}', { path: { key_id: record.key_id } });
    toast(`Key “${record.name}” is revoked`);
    await changed('/v1/keys');
  };
  return (
    <ConfirmDialog title="Revoke the key" action="Revoke the key" onClose={onClose} run={run}>
      <p>The key <b>{record.name}</b> (<code className="font-mono">{record.key_prefix}</code>{record.owner && <>, owner {record.owner}</>}) is refused from the moment this succeeds. This cannot be undone.</p>
      {record.level === 'gateway' && (
        <div aria-live="polite">
          {!rows ? <p className="text-muted">Looking up what used it…</p>
            : total === 0 ? <p>It was not used in the last 24 hours.</p>
            : <><p>In the last 24 hours it made {plural(total, 'request')}:</p><ul className="list-disc pl-5">{[...used].map(([id, n]) => <li key={id}>{plural(n, 'request')} to {nameOf(id)}</li>)}</ul></>}
        </div>
      )}
      {record.level === 'account' && <p>Sessions of the dashboard that were begun with it end at once.</p>}
    </ConfirmDialog>
  );
}
