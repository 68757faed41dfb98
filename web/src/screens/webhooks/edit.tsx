import { useState } from 'react';
import { type Answer, api, ApiError } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Conflict, type Difference } from '../../ui/conflict';
import { Dialog } from '../../ui/dialog';
import { SelectField, Submit, TextField } from '../../ui/form';
import { toast } from '../../ui/toast';
import { EventsField } from './eventsfield';
import type { Webhook } from './state';

const valuesOf = (w: Webhook) => ({ url: w.url, events: w.events, state: w.state as string });
const labels: Record<string, string> = { url: 'URL', events: 'Events', state: 'State' };
const show = (value: unknown): string => (Array.isArray(value) ? value.join(', ') : String(value));

// EditWebhook sends only the fields that were touched, with the ETag of the record they began with.
export function EditWebhook({ record, etag, onClose }: { record: Webhook; etag: string | null; onClose: () => void }) {
  const form = useForm(valuesOf(record));
  const [version, setVersion] = useState(etag);
  const [newer, setNewer] = useState<{ answer: Answer<Webhook>; differences: Difference[] } | null>(null);
  const [before] = useState(() => valuesOf(record)); // what the form began with
  const v = form.values;
  const body = { ...form.changes, ...(form.changes.url !== undefined && { url: v.url.trim() }) };
  const submit = () =>
    form.submit(async () => {
      if (!form.dirty) {
        onClose();
        return;
      }
      try {
        await api.patch('/v1/webhooks/{webhook_id}', { path: { webhook_id: record.webhook_id }, body, ifMatch: version });
      } catch (e) {
        if (!(e instanceof ApiError) || e.status !== 412) throw e;
        const answer = await api.get('/v1/webhooks/{webhook_id}', { path: { webhook_id: record.webhook_id } });
        const theirs = valuesOf(answer.data);
        setNewer({
          answer,
          differences: (Object.keys(theirs) as (keyof typeof theirs)[])
            .filter((n) => JSON.stringify(theirs[n]) !== JSON.stringify(before[n]))
            .map((n) => ({ name: labels[n] ?? n, theirs: show(theirs[n]), mine: n in form.changes ? show(v[n]) : undefined })),
        });
        return;
      }
      toast('The endpoint was saved');
      await changed('/v1/webhooks');
      onClose();
    });
  const cli = [
    'keygate webhooks update',
    record.webhook_id,
    'url' in body && `--endpoint-url ${quote(v.url)}`,
    'events' in body && `--events ${v.events.join(',')}`,
    'state' in body && `--state ${v.state}`,
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <Dialog title="Edit the endpoint" wide onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          if (!newer) void submit();
        }}>
        {newer && (
          <Conflict
            differences={newer.differences}
            onKeep={() => {
              setVersion(newer.answer.etag);
              setNewer(null);
            }}
            onTake={() => {
              setVersion(newer.answer.etag);
              form.reset(valuesOf(newer.answer.data));
              setNewer(null);
            }}
          />
        )}
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
        <div>
          <AsCode command={{ cli, method: 'PATCH', path: `/v1/webhooks/${record.webhook_id}`, body }} />
        </div>
        <Submit label="Save" busy={form.busy} error={form.error} onCancel={onClose} disabled={newer !== null} />
      </form>
    </Dialog>
  );
}
