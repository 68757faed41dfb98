import { type Answer, api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useEdit } from '../../lib/edit';
import { quote } from '../../lib/shell';
import { SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { toast } from '../../ui/toast';
import { EventsField } from './eventsfield';
import type { Webhook } from './state';

const valuesOf = (w: Webhook) => ({ url: w.url, events: w.events, state: w.state as string });
const labels = { url: 'URL', events: 'Events', state: 'State' };

// EditWebhook sends only the fields that were touched, with the ETag of the record they began with.
export function EditWebhook({ first, onClose }: { first: Answer<Webhook>; onClose: () => void }) {
  const path = { webhook_id: first.data.webhook_id };
  const form = useEdit({ first, valuesOf, labels, read: () => api.get('/v1/webhooks/{webhook_id}', { path }) });
  const v = form.values;
  const body = { ...form.changes, ...(form.changes.url !== undefined && { url: v.url.trim() }) };
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/webhooks/{webhook_id}', { path, body, ifMatch }),
      saved: async () => {
        toast('The endpoint was saved');
        await changed('/v1/webhooks');
        onClose();
      },
    });
  const cli = [
    'keygate webhooks update',
    path.webhook_id,
    'url' in body && `--endpoint-url ${quote(v.url)}`,
    'events' in body && `--events ${v.events.join(',')}`,
    'state' in body && `--state ${v.state}`,
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <FormDialog
      title="Edit the endpoint"
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'PATCH', path: `/v1/webhooks/${path.webhook_id}`, body }}
      onClose={onClose}>
      <TextField
        label="URL"
        autoFocus
        mono
        inputMode="url"
        value={v.url}
        onChange={(t) => form.set('url', t)}
        error={form.fieldError('url')}
      />
      <SelectField
        label="State"
        value={v.state}
        onChange={(t) => form.set('state', t)}
        error={form.fieldError('state')}
        options={[
          { value: 'active', label: 'Active: receives events' },
          { value: 'disabled', label: 'Disabled: receives nothing' },
        ]}
      />
      <EventsField value={v.events} onChange={(e) => form.set('events', e)} error={form.fieldError('events')} />
    </FormDialog>
  );
}
