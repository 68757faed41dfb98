import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { timeOfDay } from '../../lib/time';
import { Button, Details, Empty, Failure, Id, Page, Panel, Skeleton, Time } from '../../ui/basic';
import { Icon } from '../../ui/icon';
import { toast } from '../../ui/toast';
import { DeleteWebhook, Recover, RotateSecret, TestWebhook } from './actions';
import { EditWebhook } from './edit';
import { useEndpointHealth } from './health';
import { DeliveryLog } from './log';
import { FailedLately, LastAttempt } from './parts';
import { EndpointState } from './state';

export default function WebhookDetail() {
  const { webhookId } = useParams({ from: '/webhooks/$webhookId' });
  const query = useRecord('/v1/webhooks/{webhook_id}', { path: { webhook_id: webhookId } }, { refetchInterval: 10_000 });
  const { health, ...known } = useEndpointHealth(webhookId);
  const noLog = useRefusal('read', 'webhook-deliveries');
  const write = useRefusal('write', `webhooks/${webhookId}`);
  const admin = useRefusal('admin', `webhooks/${webhookId}`);
  const navigate = useNavigate();
  const [open, setOpen] = useState<'' | 'edit' | 'rotate' | 'test' | 'recover' | 'delete'>('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const w = query.data?.data;
  if (query.error && !w)
    return (
      <Page title="Endpoint">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!w)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-96" />}>
        <Panel>
          <Skeleton className="h-40 w-full" />
        </Panel>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const disabled = w.state === 'disabled';
  const off = disabled ? 'The endpoint is disabled. Enable it first.' : null;
  const enable = async () => {
    setBusy(true);
    setError(null);
    try {
      await api.patch('/v1/webhooks/{webhook_id}', {
        path: { webhook_id: webhookId },
        body: { state: 'active' },
        ifMatch: query.data?.etag,
      });
      toast('The endpoint is active again');
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
      void changed('/v1/webhooks');
    }
  };
  const close = () => setOpen('');
  return (
    <Page
      title={
        <span className="flex min-w-0 flex-wrap items-center gap-3">
          <span className="line-clamp-2 min-w-0 text-lg break-all" title={w.url}>
            {w.url}
          </span>
          <EndpointState record={w} />
        </span>
      }
      actions={
        <>
          <Button why={write ?? off} icon="play" onClick={() => setOpen('test')}>
            Test
          </Button>
          <Button why={write} onClick={() => setOpen('edit')}>
            Edit
          </Button>
          <Button why={write} icon="refresh" onClick={() => setOpen('rotate')}>
            Rotate the secret
          </Button>
          <Button why={write ?? off} onClick={() => setOpen('recover')}>
            Redeliver what failed
          </Button>
          <Button why={admin} kind="danger" icon="stop" onClick={() => setOpen('delete')}>
            Delete
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      {error !== null && <Failure error={error} />}
      {disabled && (
        <div className="flex flex-wrap items-center gap-2 rounded-md border border-warn bg-warn-soft px-3 py-2">
          <Icon name="warn" className="text-warn" />
          <p className="min-w-0 flex-1 break-words">
            This endpoint is disabled and receives nothing{w.disabled_reason ? `: ${w.disabled_reason}` : ''}.
          </p>
          <Button kind="primary" why={write} busy={busy} onClick={() => void enable()}>
            Enable
          </Button>
        </div>
      )}
      {w.paused_until && (
        <div className="flex flex-wrap items-center gap-2 rounded-md border border-warn bg-warn-soft px-3 py-2">
          <Icon name="clock" className="text-warn" />
          <p className="min-w-0 flex-1 break-words">
            Attempts failed one after the other, so this endpoint is paused: new deliveries begin again at {timeOfDay(w.paused_until)}.
            Retries and redeliveries go on.
          </p>
        </div>
      )}
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <Panel title="Endpoint">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={w.webhook_id} />],
              ['Signing secret', 'shown only when it is created or rotated'],
              ['Created', <Time key="created" at={w.created_at} />],
              ['Last attempt', <LastAttempt key="last" webhookId={webhookId} health={health} known={known} />],
              ['Failed in 24 hours', <FailedLately key="failed" webhookId={webhookId} health={health} known={known} />],
            ]}
          />
        </Panel>
        <Panel title="Events">
          <ul className="flex flex-wrap gap-2">
            {w.events.map((e) => (
              <li key={e}>
                <Link
                  to="/webhooks/$webhookId"
                  params={{ webhookId }}
                  search={{ event_type: e }}
                  className="block rounded-md border border-line px-2 py-0.5 font-mono text-sm hover:bg-hover">
                  {e}
                </Link>
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <h2 className="-mb-1 text-lg font-semibold">Deliveries</h2>
      {noLog ? (
        <Panel>
          <Empty icon="stop" title="Not allowed">
            {noLog}
          </Empty>
        </Panel>
      ) : (
        <DeliveryLog webhookId={webhookId} />
      )}
      {open === 'edit' && query.data && <EditWebhook first={query.data} onClose={close} />}
      {open === 'rotate' && <RotateSecret record={w} onClose={close} />}
      {open === 'test' && <TestWebhook record={w} onClose={close} />}
      {open === 'recover' && <Recover record={w} onClose={close} />}
      {open === 'delete' && <DeleteWebhook record={w} onClose={close} onDone={() => void navigate({ to: '/webhooks' })} />}
    </Page>
  );
}
