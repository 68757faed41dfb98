import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { plural } from '../../lib/format';
import { pointInTime, showPoint, useSpan } from '../../lib/span';
import { useUrl } from '../../lib/url';
import { Button, Empty, Panel, Time } from '../../ui/basic';
import { type Filter, FilterBar } from '../../ui/filter';
import { Ranges } from '../../ui/ranges';
import { type Column, PagedTable } from '../../ui/table';
import { eventTypes } from './catalogue';
import { Countdown, type Delivery, DeliveryState, host, lasted, outcome, stateNames } from './state';

// useWebhooks returns the newest 100 endpoints, for names and choices.
export function useWebhooks() {
  const refused = useRefusal('read', 'webhooks');
  const query = useList('/v1/webhooks', { query: { limit: 100 } }, { enabled: !refused, staleTime: 30_000 });
  const webhooks = query.data?.data.data ?? [];
  const urlOf = (id: string) => webhooks.find((w) => w.webhook_id === id)?.url;
  return { webhooks, urlOf, hostOf: (id: string) => host(urlOf(id) ?? id) };
}

const types = [...eventTypes, 'webhook.test'].map((value) => ({ value, label: value }));

// DeliveryLog is the log of deliveries, of one endpoint or of all.
export function DeliveryLog({ webhookId }: { webhookId?: string }) {
  const [url, change] = useUrl<'webhook_id' | 'state' | 'event_type' | 'since' | 'until' | 'cursor'>();
  const { since, until, ready } = useSpan();
  const { webhooks, urlOf, hostOf } = useWebhooks();
  const { state, event_type, cursor } = url;
  const webhook_id = webhookId ?? url.webhook_id;
  const query = useList('/v1/webhook-deliveries', { query: { webhook_id, state, event_type, since, until, cursor, limit: 50 } }, { enabled: ready, refetchInterval: cursor ? false : 5_000 });
  const filters: Filter[] = [
    ...(webhookId ? [] : [{ name: 'webhook_id', label: 'Endpoint', values: webhooks.map((w) => ({ value: w.webhook_id, label: w.url })), shown: hostOf }]),
    { name: 'state', label: 'State', values: stateNames },
    { name: 'event_type', label: 'Event', values: types },
    { name: 'since', label: 'Since', shown: showPoint }, { name: 'until', label: 'Until', shown: showPoint },
  ];
  const columns: Column<Delivery>[] = [
    { title: 'Created', className: 'w-24', cell: (d) => <Time at={d.created_at} /> },
    { title: 'State', className: 'w-28', cell: (d) => <DeliveryState state={d.state} /> },
    { title: 'Event', cell: (d) => <Link to="/deliveries/$deliveryId" params={{ deliveryId: d.delivery_id }} className="link font-mono text-sm whitespace-nowrap">{d.event_type}</Link> },
    ...(webhookId ? [] : [{
      title: 'Endpoint', className: 'max-w-56 hidden md:table-cell',
      cell: (d: Delivery) => <Link to="/webhooks/$webhookId" params={{ webhookId: d.webhook_id }} className="link block truncate" title={urlOf(d.webhook_id) ?? d.webhook_id}>{hostOf(d.webhook_id)}</Link>,
    }]),
    {
      title: 'Last answer', className: 'max-w-72 hidden sm:table-cell',
      cell: (d) => {
        const last = d.attempts.at(-1);
        return last ? <span className="block truncate" title={outcome(last)}>{outcome(last)}</span> : <span className="text-muted">–</span>;
      },
    },
    { title: 'Duration', number: true, className: 'hidden lg:table-cell', cell: (d) => { const last = d.attempts.at(-1); return last ? lasted(last) : '–'; } },
    { title: 'Attempts', number: true, className: 'hidden md:table-cell', cell: (d) => d.attempts.length },
    { title: 'Next attempt', number: true, className: 'hidden sm:table-cell', cell: (d) => <Countdown at={d.next_attempt_at} /> },
  ];
  const filtered = Boolean((!webhookId && webhook_id) || state || event_type || since || until);
  return (
    <Panel flush title={<FilterBar search={false} filters={filters} placeholder="Filter by state, event or time (15m, 1h, 7d)" />}
      actions={<Ranges value="" options={['1h', '24h', '7d']} onChange={(r) => change({ since: pointInTime(r), until: undefined })} />}>
      <PagedTable label="Deliveries" query={query} columns={columns} rowKey={(d) => d.delivery_id}
        empty={filtered
          ? <Empty icon="search" title="No delivery matches" action={<Button onClick={() => change({ webhook_id: undefined, state: undefined, event_type: undefined, since: undefined, until: undefined })}>Clear the filters</Button>}>Failed deliveries are kept for 7 days, others for 3 days.</Empty>
          : <Empty icon="webhook" title="No deliveries yet">When an event occurs that {webhookId ? 'this endpoint' : 'an endpoint'} receives, its delivery appears here with every attempt.</Empty>} />
    </Panel>
  );
}

// attemptsText says how often it was tried.
export const attemptsText = (d: Delivery): string => (d.attempts.length === 0 ? 'No attempt yet' : plural(d.attempts.length, 'attempt'));
