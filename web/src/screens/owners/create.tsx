import { useNavigate } from '@tanstack/react-router';
import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { calendarBody, calendarFlags, noCalendar } from '../../lib/calendar';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { addFlags, type Pair, Pairs, toRecord } from '../../ui/pairs';
import { PlanField } from '../../ui/planselect';
import { toast } from '../../ui/toast';
import { OwnerCalendar } from './parts';

// CreateOwner asks for a new owner.
export function CreateOwner({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const form = useForm({ external_id: '', name: '', plan: '', ...noCalendar, metadata: [] as Pair[] });
  const v = form.values;
  const metadata = toRecord(v.metadata);
  const calendar = calendarBody(v);
  const body = {
    external_id: v.external_id,
    ...(v.name && { name: v.name }),
    ...(v.plan && { plan: v.plan }),
    ...calendar,
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
  const cli = [
    `keygate owners create ${quote(v.external_id || 'IDENTIFIER')}`,
    v.name && `--name ${quote(v.name)}`,
    v.plan && `--plan ${v.plan}`,
    ...calendarFlags(calendar),
    ...addFlags(metadata),
  ]
    .filter(Boolean)
    .join(' ');
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/owners', { body });
      toast(`Owner “${v.external_id}” is created`);
      await changed('/v1/owners');
      await navigate({ to: '/owners/$ownerId', params: { ownerId: data.owner_id } });
    });
  return (
    <FormDialog
      title="Create an owner"
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'POST', path: '/v1/owners', body }}
      label="Create the owner"
      onClose={onClose}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Identifier"
          autoFocus
          required
          maxLength={255}
          value={v.external_id}
          onChange={(t) => form.set('external_id', t)}
          error={form.fieldError('external_id')}
          placeholder="customer-42"
          hint="What your own systems call it. It never changes."
        />
        <TextField
          label="Name"
          optional
          maxLength={255}
          value={v.name}
          onChange={(t) => form.set('name', t)}
          error={form.fieldError('name')}
          placeholder="Acme Ltd"
        />
        <PlanField
          optional
          none="None: that of the gateway"
          value={v.plan}
          onChange={(t) => form.set('plan', t)}
          error={form.fieldError('plan')}
          hint="The limits of all its keys"
        />
        <OwnerCalendar form={form} />
      </div>
      <Pairs label="Metadata" value={v.metadata} onChange={(m) => form.set('metadata', m)} error={form.fieldError('metadata')} />
    </FormDialog>
  );
}
