import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { count, plural } from '../../lib/format';
import { pointInTime, showPoint } from '../../lib/span';
import { type Range } from '../../lib/time';
import { AsCode } from '../../ui/ascode';
import { Button, buttonClass, Code, Failure, Status } from '../../ui/basic';
import { ConfirmDialog, Dialog } from '../../ui/dialog';
import { Form, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { Ranges } from '../../ui/ranges';
import { toast } from '../../ui/toast';
import { NewSecret } from './secret';
import { Countdown, type Delivery, DeliveryState, lasted, Outcome, outcome, succeeded, type Webhook } from './state';

const changedAll = () => changed('/v1/webhook');

interface ActionProps {
  record: Webhook;
  onClose: () => void;
}

const overlaps = [
  { hours: 0, label: 'None' },
  { hours: 1, label: '1 hour' },
  { hours: 24, label: '1 day' },
  { hours: 168, label: '7 days' },
];

// RotateSecret replaces the signing secret. During the overlap both secrets sign.
export function RotateSecret({ record, onClose }: ActionProps) {
  const form = useForm({ overlap: '24' });
  const [made, setMade] = useState<Schemas['NewWebhook'] | null>(null);
  const text = form.values.overlap.trim();
  const hours = /^\d{1,3}$/.test(text) && Number(text) <= 168 ? Number(text) : null;
  if (made) {
    return (
      <NewSecret
        record={made}
        title="The secret is rotated"
        onClose={() => {
          setMade(null);
          onClose();
        }}>
        <p>
          {hours
            ? `For ${plural(hours, 'hour')} deliveries are signed with both secrets. Replace the old one at the receiver in that time.`
            : 'Deliveries are signed with this secret only, from now on.'}
        </p>
      </NewSecret>
    );
  }
  const path = `/v1/webhooks/${record.webhook_id}/rotate-secret`;
  const body = { overlap_hours: hours ?? 0 };
  return (
    <FormDialog
      title="Rotate the signing secret"
      form={form}
      submit={() => {
        if (hours === null) return;
        void form.submit(async () => {
          const { data } = await api.post('/v1/webhooks/{webhook_id}/rotate-secret', { path: { webhook_id: record.webhook_id }, body });
          setMade(data as Schemas['NewWebhook']);
          void changedAll();
        });
      }}
      command={{
        cli: `keygate webhooks rotate-secret ${record.webhook_id} --overlap-hours ${body.overlap_hours}`,
        method: 'POST',
        path,
        body,
      }}
      label="Rotate the secret"
      disabled={hours === null}
      onClose={onClose}>
      <p className="text-muted">
        A new secret signs the deliveries to <b className="break-all text-text">{record.url}</b>.
      </p>
      <div className="flex flex-col gap-2">
        <TextField
          label="Overlap in hours"
          inputMode="numeric"
          value={form.values.overlap}
          onChange={(t) => form.set('overlap', t)}
          error={hours === null ? 'Enter a whole number from 0 to 168.' : form.fieldError('overlap_hours')}
          hint={
            hours === 0
              ? 'The old secret signs no more at once: receivers that still have it refuse deliveries.'
              : 'For this long the old secret signs as well.'
          }
        />
        <div className="flex flex-wrap gap-2">
          {overlaps.map((o) => (
            <Button key={o.hours} size="sm" onClick={() => form.set('overlap', String(o.hours))}>
              {o.label}
            </Button>
          ))}
        </div>
      </div>
    </FormDialog>
  );
}

// TestWebhook sends a test event and shows what becomes of it.
export function TestWebhook({ record, onClose }: ActionProps) {
  const [id, setId] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const path = `/v1/webhooks/${record.webhook_id}/test`;
  const send = async () => {
    setBusy(true);
    setError(null);
    setId(null);
    try {
      const { data } = await api.post('/v1/webhooks/{webhook_id}/test', { path: { webhook_id: record.webhook_id } });
      setId(data.delivery_id);
      void changedAll();
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title="Test the endpoint" wide onClose={onClose} mayClose={() => !busy}>
      <Form onSubmit={send}>
        <p>
          An event of type <code className="font-mono">webhook.test</code> without data is sent to <b className="break-all">{record.url}</b>
          . It appears in the log of deliveries, and in no list of events.
        </p>
        {error !== null && <Failure error={error} />}
        <div role="status">{id && <TestResult id={id} />}</div>
        <div className="flex items-center justify-between gap-2">
          <AsCode command={{ cli: `keygate webhooks test ${record.webhook_id}`, method: 'POST', path }} />
          <div className="flex gap-2">
            <Button onClick={onClose}>Close</Button>
            <Button type="submit" kind="primary" busy={busy}>
              {id ? 'Send another' : 'Send a test'}
            </Button>
          </div>
        </div>
      </Form>
    </Dialog>
  );
}

function TestResult({ id }: { id: string }) {
  const query = useRecord(
    '/v1/webhook-deliveries/{delivery_id}',
    { path: { delivery_id: id } },
    {
      refetchInterval: (q) => {
        const s = q.state.data?.data.state;
        return s === undefined || s === 'pending' ? 500 : s === 'retry_scheduled' ? 2_000 : false;
      },
    },
  );
  const d = query.data?.data;
  const last = d?.attempts.at(-1);
  return (
    <div className="flex flex-col gap-3 rounded-md border border-line p-3">
      {query.error && <Failure error={query.error} />}
      {!last ? (
        <Status tone="info">Waiting for the response</Status>
      ) : (
        <>
          <p className="flex flex-wrap items-center gap-2">
            {succeeded(last) ? <b>The receiver accepted it.</b> : <b>The receiver did not accept it.</b>}
            <Outcome attempt={last} />
            <span className="text-muted">after {lasted(last)}</span>
            {d?.state === 'retry_scheduled' && (
              <span className="text-muted">
                The next attempt is <Countdown at={d.next_attempt_at} />
              </span>
            )}
            {d?.state === 'failed' && <DeliveryState state="failed" />}
          </p>
          {last.error && <p className="break-words text-bad">{outcome(last)}</p>}
          {last.response_body && <Code wrap text={last.response_body} label="Response of the receiver" />}
        </>
      )}
      <p>
        <Link to="/deliveries/$deliveryId" params={{ deliveryId: id }} className="link">
          Open the delivery
        </Link>
      </p>
    </div>
  );
}

// Recover redelivers all that failed since a time, and says before how much that is.
export function Recover({ record, onClose }: ActionProps) {
  const form = useForm({ since: '' });
  const [begun, setBegun] = useState<Begun | null>(null);
  const [since, setSince] = useState(() => pointInTime('24h')); // the last time that was understood
  const noLog = useRefusal('read', 'webhook-deliveries');
  const text = form.values.since;
  const set = (t: string) => {
    form.set('since', t);
    const time = pointInTime(t);
    if (!Number.isNaN(Date.parse(time))) setSince(time);
  };
  const valid = text.trim() === '' || !Number.isNaN(Date.parse(pointInTime(text)));
  const failed = useCount({ webhook_id: record.webhook_id, state: 'failed', since }, begun === null);
  const path = `/v1/webhooks/${record.webhook_id}/recover`;
  if (begun !== null) {
    return (
      <Dialog title="Redeliver what failed" onClose={onClose}>
        <div className="flex flex-col gap-4">
          {begun.deliveries === 0 ? <p role="status">Nothing had to be redelivered.</p> : <Progress record={record} begun={begun} />}
          <div className="flex justify-end gap-2">
            <Link to="/webhooks/$webhookId" params={{ webhookId: record.webhook_id }} className={buttonClass()} onClick={onClose}>
              Show the log
            </Link>
            <Button kind="primary" onClick={onClose}>
              Done
            </Button>
          </div>
        </div>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title="Redeliver what failed"
      form={form}
      submit={() => {
        if (!valid) return;
        void form.submit(async () => {
          // The new deliveries are those after the newest one of now, whatever the clocks say.
          const newest = noLog
            ? undefined
            : (await api.get('/v1/webhook-deliveries', { query: { webhook_id: record.webhook_id, limit: 1 } })).data.data[0];
          try {
            const { data } = await api.post('/v1/webhooks/{webhook_id}/recover', {
              path: { webhook_id: record.webhook_id },
              body: { since },
              signal: AbortSignal.timeout(180_000),
            });
            setBegun({ deliveries: Number(data.deliveries), after: newest });
          } finally {
            void changedAll();
          }
        });
      }}
      command={{ cli: `keygate webhooks recover ${record.webhook_id} --since ${since}`, method: 'POST', path, body: { since } }}
      label="Redeliver"
      disabled={!valid}
      onClose={onClose}>
      <p className="text-muted">
        Each event whose delivery to <b className="break-all text-text">{record.url}</b> failed, and that was not redelivered afterwards, is
        sent again.
      </p>
      <div className="flex flex-col gap-2">
        <TextField
          label="Failed since"
          mono
          value={text}
          placeholder={since}
          onChange={set}
          error={valid ? form.fieldError('since') : 'Enter a time, such as 2026-03-01T12:00:00Z, or how long ago, such as 12h.'}
          hint={`That is ${showPoint(since)}. Failed deliveries are kept for 7 days.`}
        />
        <div>
          <Ranges value={text === '' ? '24h' : (text as Range)} options={['15m', '1h', '24h', '7d']} onChange={set} />
        </div>
      </div>
      <p aria-live="polite" className="rounded-md bg-hover px-3 py-2">
        {noLog ? (
          'Your key may not read the deliveries, so they are not counted.'
        ) : !failed ? (
          'Counting what failed…'
        ) : failed.n === 0 ? (
          'No delivery that was created since then has failed.'
        ) : (
          <>
            <b>
              {failed.more ? 'More than ' : ''}
              {plural(failed.n, 'delivery', 'deliveries')}
            </b>{' '}
            created since then failed. Those that were redelivered afterwards are left out.
          </>
        )}
      </p>
      {form.error && form.error.status !== 422 && (
        <p className="text-muted">Some deliveries may have begun. Redelivering again goes on with the rest.</p>
      )}
    </FormDialog>
  );
}

interface Begun {
  deliveries: number;
  after?: Delivery; // the newest delivery before them
}

// At most so many deliveries are counted.
const countable = 1_000;

// countOf counts the deliveries of a list that match, up to a bound.
async function countOf(
  query: Record<string, string | undefined>,
  matches: (d: Delivery) => boolean,
  signal?: AbortSignal,
): Promise<{ n: number; more: boolean }> {
  let n = 0;
  let cursor: string | undefined;
  for (let read = 0; read < countable; read += 100) {
    const { data } = await api.get('/v1/webhook-deliveries', { query: { ...query, cursor, limit: 100 }, signal });
    n += data.data.filter(matches).length;
    if (!data.next_cursor) return { n, more: false };
    cursor = data.next_cursor;
  }
  return { n, more: true };
}

// useCount counts the deliveries of a list, up to a bound.
function useCount(query: Record<string, string | undefined>, enabled: boolean) {
  const noLog = useRefusal('read', 'webhook-deliveries');
  return useQuery({
    queryKey: ['/v1/webhook-deliveries', 'count', query],
    queryFn: ({ signal }) => countOf(query, () => true, signal),
    enabled: enabled && !noLog,
  }).data;
}

// Progress shows what becomes of redeliveries, until none of them waits.
function Progress({ record, begun }: { record: Webhook; begun: Begun }) {
  const noLog = useRefusal('read', 'webhook-deliveries');
  const mine = (d: Delivery) => d.trigger === 'recover' && d.delivery_id > (begun.after?.delivery_id ?? '');
  const query = useQuery({
    queryKey: ['/v1/webhook-deliveries', 'progress', record.webhook_id, begun.after?.delivery_id ?? ''],
    queryFn: async ({ signal }) => {
      const of = (state: string) => countOf({ webhook_id: record.webhook_id, state, since: begun.after?.created_at }, mine, signal);
      const [pending, retrying, failed] = [await of('pending'), await of('retry_scheduled'), await of('failed')];
      return { pending, retrying, failed, exact: !pending.more && !retrying.more && !failed.more };
    },
    enabled: !noLog,
    refetchInterval: (q) => (q.state.data?.exact && q.state.data.pending.n + q.state.data.retrying.n === 0 ? false : 2_000),
  });
  const p = query.data;
  const open = p ? p.pending.n + p.retrying.n : begun.deliveries;
  const delivered = p?.exact ? Math.max(begun.deliveries - open - p.failed.n, 0) : null;
  const shown = (c: { n: number; more: boolean }) => `${c.more ? 'more than ' : ''}${count(c.n)}`;
  return (
    <>
      <p>
        <b>{plural(begun.deliveries, 'new delivery', 'new deliveries')}</b> {begun.deliveries === 1 ? 'has' : 'have'} begun.
      </p>
      {noLog ? (
        <p className="text-muted">Your key may not read the deliveries, so their outcome is not shown here.</p>
      ) : (
        <>
          {query.error && <Failure error={query.error} />}
          <progress
            aria-label="Deliveries that have ended"
            className="h-2 w-full accent-(--accent)"
            max={begun.deliveries}
            value={p ? Math.max(begun.deliveries - open, 0) : 0}
          />
          <dl className="grid grid-cols-2 gap-x-4 gap-y-1 sm:grid-cols-4">
            {(
              [
                ['Delivered', delivered === null ? '…' : count(delivered)],
                ['Waiting', p ? shown(p.pending) : '…'],
                ['Retrying', p ? shown(p.retrying) : '…'],
                ['Failed again', p ? shown(p.failed) : '…'],
              ] as const
            ).map(([name, value]) => (
              <div key={name}>
                <dt className="text-sm text-muted">{name}</dt>
                <dd className="font-medium">{value}</dd>
              </div>
            ))}
          </dl>
          <p role="status">
            {!p || open > 0 || !p.exact ? (
              'You can close this: the deliveries go on.'
            ) : p.failed.n === 0 ? (
              <Status tone="ok">All were delivered</Status>
            ) : (
              <Status tone="bad">{p.failed.n === begun.deliveries ? 'All failed again' : `${count(p.failed.n)} failed again`}</Status>
            )}
          </p>
        </>
      )}
    </>
  );
}

// DeleteWebhook names what it destroys.
export function DeleteWebhook({ record, onClose, onDone }: ActionProps & { onDone: () => void }) {
  const done = useRef(onDone);
  useEffect(() => {
    done.current = onDone;
  });
  const run = async () => {
    await api.delete('/v1/webhooks/{webhook_id}', { path: { webhook_id: record.webhook_id } });
    toast('The endpoint was deleted');
    done.current();
    await changedAll();
  };
  return (
    <ConfirmDialog title="Delete the endpoint" action="Delete the endpoint" onClose={onClose} run={run}>
      <p>
        The endpoint <b className="break-all">{record.url}</b> and its signing secret are deleted. It receives no more events, and its
        pending deliveries fail. This cannot be undone.
      </p>
      <div>
        <AsCode
          command={{
            cli: `keygate webhooks delete ${record.webhook_id} --yes`,
            method: 'DELETE',
            path: `/v1/webhooks/${record.webhook_id}`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}
