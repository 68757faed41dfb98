import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { type Column, PagedTable } from '../../ui/table';
import { eventTypes } from './catalogue';
import { CreateWebhook } from './create';
import { useHealth } from './health';
import { WebhookNav } from './nav';
import { FailedLately, LastAttempt } from './parts';
import { EndpointState, type Webhook } from './state';

export default function Webhooks() {
  const [url, change] = useUrl<'cursor' | 'create'>();
  const query = useList('/v1/webhooks', { query: { cursor: url.cursor, limit: 25 } }, { refetchInterval: 15_000 });
  const refused = useRefusal('write', 'webhooks');
  const { of, ...known } = useHealth();
  const create = (
    <Button kind="primary" icon="plus" why={refused} onClick={() => change({ create: '1' })}>
      Create an endpoint
    </Button>
  );
  const columns: Column<Webhook>[] = [
    {
      title: 'Endpoint',
      className: 'w-full max-w-0',
      cell: (w) => (
        <Link
          to="/webhooks/$webhookId"
          params={{ webhookId: w.webhook_id }}
          className="row-link link block truncate font-medium"
          title={w.url}>
          {w.url}
        </Link>
      ),
    },
    {
      title: 'State',
      className: 'max-w-64',
      cell: (w) => (
        <span className="flex min-w-0 items-center gap-2">
          <EndpointState record={w} />
          {w.disabled_reason && (
            <span className="hidden min-w-0 truncate text-muted @5xl:inline" title={w.disabled_reason}>
              {w.disabled_reason}
            </span>
          )}
        </span>
      ),
    },
    {
      title: 'Last attempt',
      className: 'hidden @3xl:table-cell',
      cell: (w) => (
        <div className="min-w-40">
          <LastAttempt webhookId={w.webhook_id} health={of(w.webhook_id)} known={known} />
        </div>
      ),
    },
    {
      title: 'Failed, 24 h',
      number: true,
      className: 'hidden @md:table-cell',
      cell: (w) => <FailedLately webhookId={w.webhook_id} health={of(w.webhook_id)} known={known} />,
    },
    {
      title: 'Events',
      number: true,
      className: 'hidden @3xl:table-cell',
      cell: (w) => (
        <span title={w.events.join(', ')}>
          {w.events.length === eventTypes.length ? 'all' : `${w.events.length} of ${eventTypes.length}`}
        </span>
      ),
    },
    { title: 'Created', number: true, className: 'hidden @5xl:table-cell', cell: (w) => <Time at={w.created_at} /> },
  ];
  return (
    <Page title="Webhooks" actions={create}>
      <WebhookNav />
      <Panel flush>
        <PagedTable
          label="Endpoints"
          query={query}
          columns={columns}
          rowKey={(w) => w.webhook_id}
          skeletons={4}
          empty={
            <Empty icon="webhook" title="No endpoints yet" action={create}>
              An endpoint is a URL of yours that receives events, such as a key that expired or an upstream that failed, each with a
              signature.
            </Empty>
          }
        />
      </Panel>
      {url.create && !refused && <CreateWebhook onClose={() => change({ create: undefined }, true)} />}
    </Page>
  );
}
