import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { api, ApiError } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { AsCode } from '../../ui/ascode';
import { Button, buttonClass, Code, Details, Empty, Failure, Id, Page, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { toast } from '../../ui/toast';
import { attemptsText } from './log';
import { pretty } from './payload';
import { type Attempt, Countdown, DeliveryState, lasted, Outcome, succeeded, triggers } from './state';

export default function DeliveryDetail() {
  const { deliveryId } = useParams({ from: '/deliveries/$deliveryId' });
  const query = useRecord(
    '/v1/webhook-deliveries/{delivery_id}',
    { path: { delivery_id: deliveryId } },
    {
      refetchInterval: (q) => {
        const s = q.state.data?.data.state;
        return s === 'pending' ? 1_000 : s === 'retry_scheduled' ? 2_000 : false;
      },
    },
  );
  const d = query.data?.data;
  const unseen = useRefusal('read', `webhooks/${d?.webhook_id ?? ''}`);
  const endpoint = useRecord(
    '/v1/webhooks/{webhook_id}',
    { path: { webhook_id: d?.webhook_id ?? '' } },
    { enabled: Boolean(d) && !unseen, retry: false },
  );
  const webhook = endpoint.data?.data;
  const deleted = endpoint.error?.status === 404;
  const refused = useRefusal('write', `webhook-deliveries/${deliveryId}`);
  const navigate = useNavigate();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  if (query.error?.status === 404) {
    return (
      <Page title="Delivery">
        <Panel>
          <Empty
            icon="webhook"
            title="This delivery is not kept"
            action={
              <Link to="/deliveries" className={buttonClass()}>
                All deliveries
              </Link>
            }>
            Failed deliveries are kept for 7 days, others for 3 days.
          </Empty>
        </Panel>
      </Page>
    );
  }
  if (query.error && !d)
    return (
      <Page title="Delivery">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!d)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-64" />}>
        <Panel>
          <Skeleton className="h-40 w-full" />
        </Panel>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const retrying = d.state === 'retry_scheduled';
  const why =
    refused ??
    (deleted
      ? 'The endpoint of this delivery was deleted.'
      : d.state === 'pending'
        ? 'The first attempt of this delivery has not ended yet. It can be redelivered afterwards.'
        : null);
  const redeliver = async () => {
    setBusy(true);
    setError(null);
    try {
      const { data } = await api.post('/v1/webhook-deliveries/{delivery_id}/redeliver', { path: { delivery_id: deliveryId } });
      const same = data.delivery_id === deliveryId;
      toast(same ? 'The next attempt is made now' : 'A new delivery of this event has begun');
      void changed('/v1/webhook-deliveries');
      if (same) return;
      await navigate({ to: '/deliveries/$deliveryId', params: { deliveryId: data.delivery_id } });
    } catch (e) {
      setError(e);
      // A refusal with 409 means that the state on this page is old.
      if (e instanceof ApiError && e.status === 409) void query.refetch();
    } finally {
      setBusy(false);
    }
  };
  const path = `/v1/webhook-deliveries/${deliveryId}/redeliver`;
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-3">
          <span className="font-mono text-lg">{d.event_type}</span>
          <DeliveryState state={d.state} />
        </span>
      }
      actions={
        <>
          <AsCode command={{ cli: `keygate deliveries redeliver ${deliveryId}`, method: 'POST', path }} />
          <Button icon="refresh" kind={d.state === 'failed' ? 'primary' : 'plain'} why={why} busy={busy} onClick={() => void redeliver()}>
            {retrying ? 'Retry now' : 'Redeliver'}
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      {error !== null && (
        <>
          <Failure error={error} />
          {error instanceof ApiError && error.status === 409 && (
            <p className="-mt-2 text-muted">
              Nothing was sent.{' '}
              <Link to="/webhooks/$webhookId" params={{ webhookId: d.webhook_id }} className="link">
                Open the endpoint
              </Link>
            </p>
          )}
        </>
      )}
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(0,2fr)]">
        <Panel title="Delivery">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={d.delivery_id} />],
              [
                'Endpoint',
                deleted ? (
                  <span key="endpoint" className="text-muted">
                    deleted: <code className="font-mono text-sm break-all">{d.webhook_id}</code>
                  </span>
                ) : (
                  <Link
                    key="endpoint"
                    to="/webhooks/$webhookId"
                    params={{ webhookId: d.webhook_id }}
                    className="link line-clamp-3 break-all"
                    title={webhook?.url}>
                    {webhook?.url ?? d.webhook_id}
                  </Link>
                ),
              ],
              [
                'Event',
                d.trigger === 'test' ? (
                  <Id key="event" value={d.event_id} />
                ) : (
                  <Link key="event" to="/events/$eventId" params={{ eventId: d.event_id }} className="link font-mono text-sm break-all">
                    {d.event_id}
                  </Link>
                ),
              ],
              ['Caused by', triggers[d.trigger]],
              ['Created', <Time key="created" at={d.created_at} />],
              ['Attempts', attemptsText(d)],
              [
                'Next attempt',
                d.next_attempt_at ? <Countdown key="next" at={d.next_attempt_at} /> : d.state === 'pending' ? 'due' : 'none',
              ],
            ]}
          />
        </Panel>
        <Panel title="Attempts" flush>
          {d.attempts.length === 0 ? (
            <p className="p-4 text-muted">The first attempt has not ended yet.</p>
          ) : (
            <ol aria-label="Attempts">
              {d.attempts.toReversed().map((a, i) => (
                <AttemptRow key={a.number} attempt={a} newest={i === 0} />
              ))}
            </ol>
          )}
        </Panel>
      </div>
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <Panel title="Payload">
          <Code text={pretty(d.payload)} exact={d.payload} label="Payload, exactly as it is sent" />
          <p className="mt-2 text-sm text-muted">
            Shown in lines. Copying gives the exact bytes that are sent and signed, the same in each attempt.
          </p>
        </Panel>
        <Panel title="Request headers">
          <Code
            text={Object.entries(d.request_headers)
              .map(([name, value]) => `${name}: ${value}`)
              .join('\n')}
            wrap
            label="Request headers"
          />
          <p className="mt-2 text-sm text-muted">Those of the last attempt.</p>
        </Panel>
      </div>
    </Page>
  );
}

function AttemptRow({ attempt: a, newest }: { attempt: Attempt; newest: boolean }) {
  return (
    <li className="flex flex-col gap-2 border-b border-line px-4 py-3 last:border-0">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="font-medium sm:w-20">Attempt {a.number}</span>
        <Outcome attempt={a} />
        <span className="ml-auto text-right">{lasted(a)}</span>
        <span className="text-right text-muted sm:w-24">
          <Time at={a.started_at} />
        </span>
      </div>
      {a.error && <p className="break-words text-bad">{a.error}</p>}
      {a.response_body ? (
        <details open={newest && !succeeded(a)}>
          <summary className="w-fit text-muted hover:text-text">Response of the receiver</summary>
          <div className="mt-2">
            <Code wrap text={a.response_body} label={`Response to attempt ${a.number}`} />
          </div>
        </details>
      ) : (
        a.status !== null && <p className="text-muted">The response had no body.</p>
      )}
      {a.status === null && !a.error && <Status tone="bad">No response</Status>}
    </li>
  );
}
