import { type Answer, api } from '../../api/client';
import { changed } from '../../api/hooks';
import { calendarChanges, calendarFlags, calendarText } from '../../lib/calendar';
import { useEdit } from '../../lib/edit';
import { quote } from '../../lib/shell';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { metadataFlags, type Pair, Pairs, showPairs, toRecord } from '../../ui/pairs';
import { PlanField } from '../../ui/planselect';
import { toast } from '../../ui/toast';
import { type Owner, OwnerCalendar } from './parts';

const valuesOf = (o: Owner) => ({
  name: o.name ?? '',
  plan: o.plan ?? '',
  ...calendarText(o),
  metadata: Object.entries(o.metadata) as Pair[],
});
const labels = { name: 'Name', plan: 'Plan', time_zone: 'Time zone', anchor_day: 'Months begin on day', metadata: 'Metadata' };
const show = (value: string | Pair[]): string => (typeof value === 'string' ? value || 'empty' : showPairs(value));

// EditOwner sends only the fields that were touched, with the ETag of the record they began with.
export function EditOwner({ first, onClose }: { first: Answer<Owner>; onClose: () => void }) {
  const { owner_id, external_id } = first.data;
  const path = { owner_id };
  const form = useEdit({ first, valuesOf, labels, show, read: () => api.get('/v1/owners/{owner_id}', { path }) });
  const v = form.values;
  const calendar = calendarChanges(form.changes);
  const body = {
    ...('name' in form.changes && { name: v.name || null }),
    ...('plan' in form.changes && { plan: v.plan || null }),
    ...calendar,
    ...('metadata' in form.changes && { metadata: toRecord(v.metadata) }),
  };
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/owners/{owner_id}', { path, body, ifMatch }),
      saved: async () => {
        toast(`Owner “${external_id}” was saved`);
        await changed('/v1/owners');
        onClose();
      },
    });
  const cli = [
    `keygate owners update ${quote(external_id)}`,
    'name' in body && `--name ${quote(v.name)}`,
    'plan' in body && `--plan ${quote(v.plan)}`,
    ...calendarFlags(calendar),
    ...('metadata' in body ? metadataFlags(toRecord(v.metadata)) : []),
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <FormDialog
      title={`Edit “${external_id}”`}
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'PATCH', path: `/v1/owners/${owner_id}`, body }}
      onClose={onClose}>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Name" optional autoFocus value={v.name} onChange={(t) => form.set('name', t)} error={form.fieldError('name')} />
        <PlanField
          optional
          none="None: that of the gateway"
          value={v.plan}
          onChange={(t) => form.set('plan', t)}
          error={form.fieldError('plan')}
          hint="On another plan its rates begin full. A quota with the same name and window goes on."
        />
        <OwnerCalendar form={form} />
      </div>
      <Pairs label="Metadata" value={v.metadata} onChange={(m) => form.set('metadata', m)} error={form.fieldError('metadata')} />
    </FormDialog>
  );
}
