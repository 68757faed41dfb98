import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useEdit } from '../../lib/edit';
import { wholeNumber } from '../../lib/format';
import { limitFlag, limitText, limitValue } from '../../lib/limit';
import { list } from '../../lib/settings';
import { quote } from '../../lib/shell';
import { AddressFields, networkFlags } from '../../ui/addresses';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { InFlightField, LimitFields } from '../../ui/limit';
import { metadataFlags, type Pair, Pairs, showPairs, toRecord } from '../../ui/pairs';
import { PlanField } from '../../ui/planselect';
import { toast } from '../../ui/toast';
import { ExpiryField } from './expiry';
import { inFlightHint } from './inflight';
import { noPlan, planHint } from './plan';

type Key = Schemas['Key'];

const valuesOf = (k: Key) => ({
  name: k.name,
  owner: k.owner ?? '',
  plan: k.plan ?? '',
  expires_at: k.expires_at ?? '',
  rate_limit: limitText(k.rate_limit),
  concurrency: k.concurrency === null ? '' : String(k.concurrency),
  allow_ips: (k.allow_ips ?? []).join(', '),
  deny_ips: (k.deny_ips ?? []).join(', '),
  metadata: Object.entries(k.metadata) as Pair[],
});
const labels = {
  name: 'Name',
  owner: 'Owner',
  plan: 'Plan',
  expires_at: 'Expiry',
  rate_limit: 'Rate limit',
  concurrency: 'Requests in flight',
  allow_ips: 'Allowed addresses',
  deny_ips: 'Denied addresses',
  metadata: 'Metadata',
};

const show = (value: unknown): string => {
  if (value === '' || value === null) return 'empty';
  return typeof value === 'string'
    ? value
    : Array.isArray(value)
      ? showPairs(value as Pair[])
      : (limitFlag(value as ReturnType<typeof limitText>) ?? 'none');
};

// EditKey sends only the fields that were touched, with the ETag of the record they began with.
export function EditKey({ first, onClose }: { first: Answer<Key>; onClose: () => void }) {
  const record = first.data;
  const path = { key_id: record.key_id };
  const form = useEdit({ first, valuesOf, labels, show, read: () => api.get('/v1/keys/{key_id}', { path }) });
  const v = form.values;
  const body: Record<string, unknown> = {};
  for (const name of Object.keys(form.changes) as (keyof typeof v)[]) {
    if (name === 'rate_limit') body[name] = limitValue(v.rate_limit);
    else if (name === 'concurrency') body[name] = v.concurrency.trim() ? wholeNumber(v.concurrency) : null;
    else if (name === 'allow_ips' || name === 'deny_ips') body[name] = list(v[name]);
    else if (name === 'metadata') body[name] = toRecord(v.metadata);
    else body[name] = v[name] === '' && name !== 'name' ? null : v[name];
  }
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/keys/{key_id}', { path, body, ifMatch }),
      saved: async () => {
        toast(`Key “${v.name}” was saved`);
        await changed('/v1/keys');
        onClose();
      },
    });
  const cli = [
    'keygate keys update',
    record.key_id,
    'name' in body && `--name ${quote(v.name)}`,
    'owner' in body && `--owner ${quote(v.owner)}`,
    'plan' in body && `--plan ${quote(v.plan)}`,
    'expires_at' in body && `--expires ${quote(v.expires_at)}`,
    'rate_limit' in body && `--rate-limit ${quote(limitFlag(v.rate_limit) ?? '')}`,
    'concurrency' in body && `--concurrency ${quote(String(body.concurrency ?? ''))}`,
    ...('allow_ips' in body ? networkFlags('allow-ip', v.allow_ips) : []),
    ...('deny_ips' in body ? networkFlags('deny-ip', v.deny_ips) : []),
    ...('metadata' in body ? metadataFlags(toRecord(v.metadata)) : []),
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <FormDialog
      title={`Edit “${record.name}”`}
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'PATCH', path: `/v1/keys/${record.key_id}`, body }}
      onClose={onClose}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Name" autoFocus value={v.name} onChange={(t) => form.set('name', t)} error={form.fieldError('name')} />
        <TextField label="Owner" optional value={v.owner} onChange={(t) => form.set('owner', t)} error={form.fieldError('owner')} />
        {record.level === 'gateway' && (
          <PlanField
            optional
            none={noPlan}
            value={v.plan}
            onChange={(t) => form.set('plan', t)}
            error={form.fieldError('plan')}
            hint={planHint}
          />
        )}
      </div>
      <ExpiryField value={v.expires_at} onChange={(t) => form.set('expires_at', t)} error={form.fieldError('expires_at')} />
      {record.level === 'gateway' && (
        <>
          <LimitFields value={v.rate_limit} onChange={(l) => form.set('rate_limit', l)} error={form.limitError('rate_limit')} />
          <InFlightField
            value={v.concurrency}
            onChange={(t) => form.set('concurrency', t)}
            error={form.fieldError('concurrency')}
            hint={inFlightHint}
          />
          <AddressFields
            allow={v.allow_ips}
            deny={v.deny_ips}
            onAllow={(t) => form.set('allow_ips', t)}
            onDeny={(t) => form.set('deny_ips', t)}
            errorOf={(f) => form.errorAt((e) => e === f || e.startsWith(`${f}[`))}
          />
        </>
      )}
      <Pairs label="Metadata" value={v.metadata} onChange={(m) => form.set('metadata', m)} error={form.fieldError('metadata')} />
    </FormDialog>
  );
}
