import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { EventsField } from './eventsfield';
import { NewSecret } from './secret';

// CreateWebhook asks for a new endpoint, and then shows its signing secret the one time.
export function CreateWebhook({ onClose }: { onClose: () => void }) {
  const form = useForm({ url: '', events: [] as string[] });
  const [made, setMade] = useState<Schemas['NewWebhook'] | null>(null);
  const v = form.values;
  const body = { url: v.url.trim(), events: v.events };
  if (made)
    return (
      <NewSecret
        record={made}
        title="The endpoint is created"
        onClose={() => {
          setMade(null);
          onClose();
        }}
      />
    );
  const cli = `keygate webhooks create ${quote(body.url || 'URL')} --events ${v.events.join(',') || 'TYPE'}`;
  return (
    <FormDialog
      title="Create an endpoint"
      wide
      form={form}
      submit={() => {
        void form.submit(async () => {
          const { data } = await api.post('/v1/webhooks', { body });
          setMade(data);
          void changed('/v1/webhooks');
        });
      }}
      command={{ cli, method: 'POST', path: '/v1/webhooks', body }}
      label="Create the endpoint"
      onClose={onClose}>
      <TextField
        label="URL"
        autoFocus
        required
        mono
        inputMode="url"
        value={v.url}
        onChange={(t) => form.set('url', t)}
        error={form.fieldError('url')}
        placeholder="https://hooks.example.com/keygate"
        hint="It receives each event as a POST. It must use https; private addresses are refused unless the operator allows them."
      />
      <EventsField value={v.events} onChange={(e) => form.set('events', e)} error={form.fieldError('events')} />
      <p className="text-muted">A signing secret is created. It is shown once, after this step.</p>
    </FormDialog>
  );
}
