import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { plural } from '../../lib/format';
import { exact, relative } from '../../lib/time';
import { refreshOf, sinceOf, sum } from '../../lib/traffic';
import { Button, Panel, Skeleton, Time, useNow } from '../../ui/basic';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { NewKeyDialog } from './create';
import { ExpiryField } from './expiry';
import { KeyState } from './state';

type Key = Schemas['Key'];

const choices = [
  { days: 0, label: 'None' },
  { days: 1, label: '1 day' },
  { days: 7, label: '7 days' },
  { days: 30, label: '30 days' },
];

// RotateKey replaces a key by a new one, with an overlap in which both are valid (contract, 3.2).
export function RotateKey({ record, onClose }: { record: Key; onClose: () => void }) {
  const form = useForm({ overlap: '7', expires_at: '' });
  const [made, setMade] = useState<Schemas['NewKey'] | null>(null);
  const v = form.values;
  const days = /^\d{1,3}$/.test(v.overlap.trim()) && Number(v.overlap) <= 365 ? Number(v.overlap) : null;
  const body = { overlap_days: days ?? 0, ...(v.expires_at && { expires_at: v.expires_at }) };
  const now = useNow();
  const ends = record.expires_at ? Date.parse(record.expires_at) : null;
  if (made)
    return (
      <NewKeyDialog
        record={made}
        onClose={() => {
          setMade(null);
          onClose();
        }}
      />
    );
  return (
    <FormDialog
      title={`Rotate “${record.name}”`}
      form={form}
      submit={() => {
        if (days === null) return;
        void form.submit(async () => {
          const { data } = await api.post('/v1/keys/{key_id}/rotate', { path: { key_id: record.key_id }, body });
          setMade(data as Schemas['NewKey']);
          void changed('/v1/keys');
        });
      }}
      command={{
        cli: `keygate keys rotate ${record.key_id} --overlap-days ${days ?? 0}${v.expires_at ? ` --expires ${v.expires_at}` : ''}`,
        method: 'POST',
        path: `/v1/keys/${record.key_id}/rotate`,
        body,
      }}
      label="Rotate the key"
      disabled={days === null}
      onClose={onClose}>
      <p className="text-muted">
        A new key with the same name, scope, owner, gateway, limit and metadata replaces this one. Both count against one limit.
      </p>
      <div className="flex flex-col gap-2">
        <TextField
          label="Overlap in days"
          inputMode="numeric"
          value={v.overlap}
          onChange={(t) => form.set('overlap', t)}
          error={days === null ? 'Enter a whole number from 0 to 365.' : form.fieldError('overlap_days')}
          hint={
            days === 0
              ? 'The old key is refused at once.'
              : days !== null && ends !== null && ends < now + days * 86_400_000
                ? `Both keys are valid until the old one expires, ${relative(ends, now)}.`
                : 'For this long both keys are valid.'
          }
        />
        <div className="flex flex-wrap gap-2">
          {choices.map((c) => (
            <Button key={c.days} size="sm" onClick={() => form.set('overlap', String(c.days))}>
              {c.label}
            </Button>
          ))}
        </div>
      </div>
      <ExpiryField
        label="New key expires"
        clear="As the old one"
        unset={
          ends === null
            ? 'Without a date it does not expire, as the old key.'
            : `Without a date it expires when the old key would have: ${exact(record.expires_at ?? '')}.`
        }
        value={v.expires_at}
        onChange={(t) => form.set('expires_at', t)}
        error={form.fieldError('expires_at')}
      />
    </FormDialog>
  );
}

// Rotation shows both keys of a rotation during the overlap, and which of them is still used.
export function Rotation({ record }: { record: Key }) {
  const otherId = record.rotated_to ?? record.rotated_from;
  const query = useRecord('/v1/keys/{key_id}', { path: { key_id: otherId ?? '' } }, { enabled: Boolean(otherId), refetchInterval: 15_000 });
  const now = useNow();
  if (!otherId) return null;
  const other = query.data?.data;
  const [old, fresh] = record.rotated_to ? [record, other] : [other, record];
  const ends = old?.expires_at ? Date.parse(old.expires_at) : null;
  const overlap = old?.state === 'active' && ends !== null && ends > now;
  return (
    <Panel title={overlap ? `Rotation: the old key ends ${relative(ends, now)}` : 'Rotation'}>
      <div className="grid gap-4 sm:grid-cols-2">
        {(
          [
            ['Old key', old],
            ['New key', fresh],
          ] as const
        ).map(([label, k]) => (
          <div key={label} className="flex min-w-0 flex-col gap-1">
            <p className="text-muted">{label}</p>
            {k ? (
              <>
                <p className="flex flex-wrap items-center gap-2">
                  {k.key_id === record.key_id ? (
                    <b>{k.key_prefix}</b>
                  ) : (
                    <Link to="/keys/$keyId" params={{ keyId: k.key_id }} className="link font-mono">
                      {k.key_prefix}
                    </Link>
                  )}
                  <KeyState record={k} />
                </p>
                <p className="text-muted">
                  Last used: <Time at={k.last_used_at} none="never" />
                  {k.level === 'gateway' && <LastHour keyId={k.key_id} />}
                </p>
              </>
            ) : query.error ? (
              <p className="text-muted">It is no longer kept.</p>
            ) : (
              <Skeleton className="h-9 w-40" />
            )}
          </div>
        ))}
      </div>
      {overlap && old.last_used_at && Date.parse(old.last_used_at) > Date.parse(fresh?.created_at ?? '') && (
        <p className="mt-3 text-warn">The old key is still in use. Replace it with the new one before it ends.</p>
      )}
    </Panel>
  );
}

// LastHour says how much a key was used of late.
function LastHour({ keyId }: { keyId: string }) {
  const unread = useRefusal('read', 'reports');
  const query = useRecord(
    '/v1/reports/traffic',
    { query: { key_id: keyId, since: sinceOf('1h'), interval: '1m' } },
    { enabled: !unread, refetchInterval: refreshOf['1h'], placeholderData: (old) => old },
  );
  const rows = query.data?.data.data;
  return rows ? (
    <>
      {' '}
      ·{' '}
      {plural(
        sum(rows, (r) => r.requests),
        'request',
      )}{' '}
      in the last hour
    </>
  ) : null;
}
