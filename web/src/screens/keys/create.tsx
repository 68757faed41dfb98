import { useState } from 'react';
import { useCallLine } from '../../api/address';
import { api, base, type Schemas } from '../../api/client';
import { useFirstCall } from '../../api/firstcall';
import { useGateways } from '../../api/gateways';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { wholeNumber } from '../../lib/format';
import { limitFlag, limitValue, noLimit } from '../../lib/limit';
import { list } from '../../lib/settings';
import { quote } from '../../lib/shell';
import { AddressFields, networkFlags } from '../../ui/addresses';
import { Warnings } from '../../ui/basic';
import { SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { GatewayField } from '../../ui/gatewayselect';
import { InFlightField, LimitFields } from '../../ui/limit';
import { addFlags, type Pair, Pairs, toRecord } from '../../ui/pairs';
import { PlanField } from '../../ui/planselect';
import { SecretDialog } from '../../ui/secret';
import { ExpiryField } from './expiry';
import { inFlightHint } from './inflight';
import { noPlan, planHint } from './plan';
import { ScopeField } from './scope';

// CreateKey asks for a new key, and then shows it the one time.
export function CreateKey({ onClose }: { onClose: () => void }) {
  const notAdmin = useRefusal('admin', '');
  const form = useForm({
    name: '',
    level: 'gateway',
    scope: 'read',
    gateway_id: '',
    owner: '',
    plan: '',
    expires_at: '',
    limit: noLimit,
    concurrency: '',
    allow_ips: '',
    deny_ips: '',
    metadata: [] as Pair[],
  });
  const [made, setMade] = useState<Schemas['NewKey'] | null>(null);
  const v = form.values;
  const account = v.level === 'account';
  const limit = account ? null : limitValue(v.limit);
  const concurrency = account || !v.concurrency.trim() ? null : wholeNumber(v.concurrency);
  const metadata = toRecord(v.metadata);
  const [allowed, denied] = account ? [[], []] : [list(v.allow_ips), list(v.deny_ips)];
  const body = {
    name: v.name,
    scope: v.scope,
    ...(account && { level: 'account' }),
    ...(!account && v.gateway_id && { gateway_id: v.gateway_id }),
    ...(v.owner && { owner: v.owner }),
    ...(!account && v.plan && { plan: v.plan }),
    ...(v.expires_at && { expires_at: v.expires_at }),
    ...(limit !== null && { rate_limit: limit }),
    ...(concurrency !== null && { concurrency }),
    ...(allowed.length > 0 && { allow_ips: allowed }),
    ...(denied.length > 0 && { deny_ips: denied }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
  const cli = [
    'keygate keys create',
    `--name ${quote(v.name || 'NAME')}`,
    `--scope ${quote(v.scope)}`,
    account && '--level account',
    !account && v.gateway_id && `--gateway ${v.gateway_id}`,
    v.owner && `--owner ${quote(v.owner)}`,
    !account && v.plan && `--plan ${quote(v.plan)}`,
    v.expires_at && `--expires ${quote(v.expires_at)}`,
    limit !== null && `--rate-limit ${quote(limitFlag(v.limit) ?? '')}`,
    concurrency !== null && `--concurrency ${quote(String(concurrency))}`,
    ...(allowed.length > 0 ? networkFlags('allow-ip', v.allow_ips) : []),
    ...(denied.length > 0 ? networkFlags('deny-ip', v.deny_ips) : []),
    ...addFlags(metadata),
  ]
    .filter(Boolean)
    .join(' ');
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/keys', { body });
      setMade(data);
      void changed('/v1/keys');
    });

  if (made) {
    return (
      <NewKeyDialog
        record={made}
        onClose={() => {
          setMade(null);
          onClose();
        }}
      />
    );
  }
  return (
    <FormDialog
      title="Create a key"
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'POST', path: '/v1/keys', body }}
      label="Create the key"
      onClose={onClose}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Name"
          autoFocus
          required
          maxLength={255}
          value={v.name}
          onChange={(t) => form.set('name', t)}
          error={form.fieldError('name')}
          placeholder="Mobile app"
        />
        <TextField
          label="Owner"
          optional
          value={v.owner}
          onChange={(t) => form.set('owner', t)}
          error={form.fieldError('owner')}
          placeholder="customer-42"
          hint="Whose key it is. A new one is created."
        />
        <SelectField
          label="For"
          value={v.level}
          onChange={(t) => form.set('level', t)}
          error={form.fieldError('level')}
          options={[
            { value: 'gateway', label: 'Calls through gateways' },
            ...(notAdmin ? [] : [{ value: 'account', label: 'This management API' }]),
          ]}
          hint={notAdmin ? 'Keys for the management API need the scope admin.' : undefined}
        />
        {!account && (
          <GatewayField
            value={v.gateway_id}
            none="All gateways"
            onChange={(t) => form.set('gateway_id', t)}
            error={form.fieldError('gateway_id')}
          />
        )}
        {!account && (
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
      <ScopeField value={v.scope} onChange={(t) => form.set('scope', t)} error={form.fieldError('scope')} account={account} />
      <ExpiryField value={v.expires_at} onChange={(t) => form.set('expires_at', t)} error={form.fieldError('expires_at')} />
      {!account && (
        <fieldset className="flex flex-col gap-2">
          <legend className="mb-2 font-semibold">Limits of this key</legend>
          <LimitFields value={v.limit} onChange={(l) => form.set('limit', l)} error={form.limitError('rate_limit')} />
          <InFlightField
            value={v.concurrency}
            onChange={(t) => form.set('concurrency', t)}
            error={form.fieldError('concurrency')}
            hint={inFlightHint}
          />
        </fieldset>
      )}
      {!account && (
        <AddressFields
          allow={v.allow_ips}
          deny={v.deny_ips}
          onAllow={(t) => form.set('allow_ips', t)}
          onDeny={(t) => form.set('deny_ips', t)}
          errorOf={(f) => form.errorAt((e) => e === f || e.startsWith(`${f}[`))}
        />
      )}
      <Pairs label="Metadata" value={v.metadata} onChange={(m) => form.set('metadata', m)} error={form.fieldError('metadata')} />
    </FormDialog>
  );
}

// NewKeyDialog shows a new key in the forms in which it is used.
export function NewKeyDialog({ record, onClose }: { record: Schemas['NewKey']; onClose: () => void }) {
  const { gateways } = useGateways();
  const callLine = useCallLine();
  const key = record.key ?? '';
  const gateway = gateways.find((g) => (record.gateway_id ? g.gateway_id === record.gateway_id : g.default)) ?? gateways[0];
  const account = record.level === 'account';
  const { call } = useFirstCall(account ? undefined : gateway?.gateway_id, record.scope);
  const forms = [
    {
      name: 'Curl',
      text: account
        ? `curl ${quote(`${location.origin}${base}v1/account`)} \\\n  -H ${quote(`Authorization: Bearer ${key}`)}`
        : callLine(gateway, key, call),
    },
    { name: '.env', text: `KEYGATE_API_KEY=${key}` },
  ];
  return (
    <SecretDialog title={`Key “${record.name}”`} what="key" secret={key} forms={forms} onClose={onClose}>
      <Warnings texts={record.warnings ?? []} />
    </SecretDialog>
  );
}
