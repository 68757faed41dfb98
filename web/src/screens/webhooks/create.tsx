import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Dialog } from '../../ui/dialog';
import { Submit, TextField } from '../../ui/form';
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
    <Dialog title="Create an endpoint" wide onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void form.submit(async () => {
            const { data } = await api.post('/v1/webhooks', { body });
            setMade(data);
            void changed('/v1/webhooks');
          });
        }}>
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
        <Submit
          beside={<AsCode command={{ cli, method: 'POST', path: '/v1/webhooks', body }} />}
          label="Create the endpoint"
          busy={form.busy}
          error={form.rest}
          onCancel={onClose}
        />
      </form>
    </Dialog>
  );
}
