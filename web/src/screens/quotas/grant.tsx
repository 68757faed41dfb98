import { useRef } from 'react';
import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { exactBytes, unitsTyped } from '../../lib/plan';
import { leftWords, type Usage, unitsIn, wholeOf } from '../../lib/quota';
import { quote } from '../../lib/shell';
import { amountWords, isBytes, meterWords, ownMeter } from '../../lib/usage';
import { SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { toast } from '../../ui/toast';
import { flagOf, pathOf, resourceOf, type Subject } from './subject';

// GrantUnits adds units to the present window of a quota.
export function GrantUnits({ of, quotas, onClose }: { of: Subject; quotas: Usage[]; onClose: () => void }) {
  const form = useForm({ limit: quotas[0]?.limit ?? '', units: '', reason: '' });
  const v = form.values;
  const keys = useRef(new Map<string, string>()); // of what was sent: sent again after a failure, it adds nothing twice
  const reason = v.reason.trim();
  const named = quotas.filter((u, i) => quotas.findIndex((o) => o.limit === u.limit) === i); // a grant names the limit
  const chosen = named.find((u) => u.limit === v.limit);
  const meter = chosen?.meter ?? 'requests';
  const body = { limit: v.limit, units: unitsTyped(v.units, meter), ...(reason && { reason }) };
  const what = exactBytes(v.units, meter) || ownMeter(meter);
  const cli = ['keygate grants add', flagOf(of), `--limit ${v.limit}`, `--units ${quote(String(body.units) || 'N')}`]
    .concat(reason ? `--reason ${quote(reason)}` : [])
    .join(' ');
  const submit = () =>
    form.submit(async () => {
      const sent = JSON.stringify(v);
      const idempotencyKey = keys.current.get(sent) ?? randomKey();
      keys.current.set(sent, idempotencyKey);
      const path = of.kind === 'owner' ? '/v1/owners/{owner_id}/grants' : '/v1/keys/{key_id}/grants';
      const { data } = await api.post(path, { path: pathOf(of), body, idempotencyKey });
      toast(`${amountWords(data.meter, data.units)} granted`);
      await changed(`/v1/${of.kind}s/{${of.kind}_id}/usage`, `/v1/${of.kind}s/{${of.kind}_id}/grants`);
      onClose();
    });
  return (
    <FormDialog
      title="Grant units"
      form={form}
      submit={submit}
      command={{ cli, method: 'POST', path: `/v1/${resourceOf(of)}/grants`, body }}
      label="Grant the units"
      onClose={onClose}>
      <SelectField
        label="Quota"
        value={v.limit}
        error={form.fieldError('limit')}
        onChange={(t) => form.set('limit', t)}
        options={named.map((u) => ({ value: u.limit, label: `${u.limit} of the plan ${u.plan}${ofMeter(u)}` }))}
        hint={chosen && `${unitsIn(chosen)(chosen.used)} of ${unitsIn(chosen)(wholeOf(chosen))} used, ${leftWords(chosen)}`}
      />
      <TextField
        label={isBytes(meter) ? 'Bytes' : 'Units'}
        autoFocus
        required
        mono
        inputMode={isBytes(meter) ? 'text' : 'numeric'}
        placeholder={isBytes(meter) ? '5 GiB' : '5000'}
        hint={`${what ? `${what}, added` : 'Added'} to ${chosen?.window_end ? 'the present window only' : 'the total'}`}
        value={v.units}
        error={form.fieldError('units')}
        onChange={(t) => form.set('units', t)}
      />
      <TextField
        label="Reason"
        optional
        maxLength={255}
        placeholder="Outage of 3 March"
        hint="It stands in the list of grants and in the audit log."
        value={v.reason}
        error={form.fieldError('reason')}
        onChange={(t) => form.set('reason', t)}
      />
    </FormDialog>
  );
}

// ofMeter names what a quota counts, unless that is requests.
export const ofMeter = (u: Usage): string => (u.meter === 'requests' ? '' : `, ${meterWords(u.meter)}`);

// randomKey is also there on plain http, where crypto.randomUUID is not.
const randomKey = (): string => [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(36)).join('-');
