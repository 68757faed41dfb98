import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { plural } from '../../lib/format';
import { pointInTime, showPoint, useSpan } from '../../lib/span';
import { host, useUrl } from '../../lib/url';
import { Button, Empty, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { Ranges } from '../../ui/ranges';
import { type Column, PagedTable } from '../../ui/table';
import { eventTypes } from './catalogue';
import { Countdown, type Delivery, DeliveryState, lasted, outcome, stateNames } from './state';

// useWebhooks returns the newest 100 endpoints, for names and choices.
export function useWebhooks() {
  const refused = useRefusal('read', 'webhooks');
  const query = useList('/v1/webhooks', { query: { limit: 100 } }, { enabled: !refused, staleTime: 30_000 });
  const webhooks = query.data?.data.data ?? [];
  const urlOf = (id: string) => webhooks.find((w) => w.webhook_id === id)?.url;
  return { webhooks, urlOf, hostOf: (id: string) => host(urlOf(id) ?? id) };
}

// lastResponse is what the receiver said last.
function lastResponse(d: Delivery): string {
  const last = d.attempts.at(-1);
  return last ? outcome(last) : '';
}

const types = [...eventTypes, 'webhook.test'].map((value) => ({ value, label: value }));

// DeliveryLog is the log of deliveries, of one endpoint or of all.
export function DeliveryLog({ webhookId }: { webhookId?: string }) {
  const [url, change] = useUrl<'webhook_id' | 'event_id' | 'state' | 'event_type' | 'since' | 'until' | 'cursor'>();
  const { since, until, ready } = useSpan();
  const { webhooks, urlOf, hostOf } = useWebhooks();
  const { event_id, state, event_type, cursor } = url;
  const webhook_id = webhookId ?? url.webhook_id;
  const query = useList(
    '/v1/webhook-deliveries',
    { query: { webhook_id, event_id, state, event_type, since, until, cursor, limit: 50 } },
    { enabled: ready, refetchInterval: cursor ? false : 5_000 },
  );
  const filters: Filter[] = [
    ...(webhookId
      ? []
      : [
          {
            name: 'webhook_id',
            label: 'Endpoint',
            values: webhooks.map((w) => ({ value: w.webhook_id, label: w.url })),
            other: /^wh_/,
            shown: hostOf,
          },
        ]),
    { name: 'state', label: 'State', values: stateNames },
    { name: 'event_type', label: 'Event', values: types },
    { name: 'event_id', label: 'Event identifier', shown: (v) => (v.length > 16 ? `…${v.slice(-6)}` : v) },
    { name: 'since', label: 'Since', shown: showPoint },
    { name: 'until', label: 'Until', shown: showPoint },
  ];
  const columns: Column<Delivery>[] = [
    { title: 'Created', cell: (d) => <Time at={d.created_at} /> },
    { title: 'State', cell: (d) => <DeliveryState state={d.state} /> },
    {
      title: 'Event',
      className: 'w-full max-w-0 @3xl:w-auto @3xl:max-w-none',
      cell: (d) => (
        <>
          <Link
            to="/deliveries/$deliveryId"
            params={{ deliveryId: d.delivery_id }}
            className="row-link link block truncate font-mono text-sm whitespace-nowrap"
            title={d.event_type}>
            {d.event_type}
          </Link>
          <span className="block truncate text-sm text-muted @3xl:hidden">
            {[webhookId ? '' : hostOf(d.webhook_id), lastResponse(d)].filter(Boolean).join(' · ')}
          </span>
        </>
      ),
    },
    ...(webhookId
      ? []
      : [
          {
            title: 'Endpoint',
            className: 'w-1/2 max-w-0 hidden @3xl:table-cell',
            cell: (d: Delivery) => (
              <Link
                to="/webhooks/$webhookId"
                params={{ webhookId: d.webhook_id }}
                className="link block truncate"
                title={urlOf(d.webhook_id) ?? d.webhook_id}>
                {hostOf(d.webhook_id)}
              </Link>
            ),
          },
        ]),
    {
      title: 'Last response',
      className: `${webhookId ? 'w-full' : 'w-1/2'} max-w-0 hidden @3xl:table-cell`,
      cell: (d) =>
        lastResponse(d) ? (
          <span className="block truncate" title={lastResponse(d)}>
            {lastResponse(d)}
          </span>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    {
      title: 'Duration',
      number: true,
      className: 'hidden @5xl:table-cell',
      cell: (d) => {
        const last = d.attempts.at(-1);
        return last ? lasted(last) : '–';
      },
    },
    { title: 'Attempts', number: true, className: 'hidden @4xl:table-cell', cell: (d) => d.attempts.length },
    { title: 'Next attempt', number: true, className: 'hidden @3xl:table-cell', cell: (d) => <Countdown at={d.next_attempt_at} /> },
  ];
  const filtered = Boolean((!webhookId && webhook_id) || event_id || state || event_type || since || until);
  return (
    <Panel
      flush
      title={
        <FilterBar
          search={false}
          filters={filters}
          placeholder={`Filter by ${webhookId ? '' : 'endpoint, '}state, event or time (15m, 1h, 7d)`}
        />
      }
      actions={<Ranges value="" options={['1h', '24h', '7d']} onChange={(r) => change({ since: pointInTime(r), until: undefined })} />}>
      <PagedTable
        label="Deliveries"
        query={query}
        columns={columns}
        rowKey={(d) => d.delivery_id}
        empty={
          filtered ? (
            <Empty
              icon="search"
              title="No delivery matches"
              action={
                <Button
                  onClick={() =>
                    change({
                      webhook_id: undefined,
                      event_id: undefined,
                      state: undefined,
                      event_type: undefined,
                      since: undefined,
                      until: undefined,
                    })
                  }>
                  Clear the filters
                </Button>
              }>
              Failed deliveries are kept for 7 days, others for 3 days.
            </Empty>
          ) : (
            <Empty icon="webhook" title="No deliveries yet">
              When an event occurs that {webhookId ? 'this endpoint' : 'an endpoint'} receives, its delivery appears here with every
              attempt.
            </Empty>
          )
        }
      />
    </Panel>
  );
}

// attemptsText says how often it was tried.
export const attemptsText = (d: Delivery): string => (d.attempts.length === 0 ? 'No attempt yet' : plural(d.attempts.length, 'attempt'));
