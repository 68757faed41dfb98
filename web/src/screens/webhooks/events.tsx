import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { useList } from '../../api/hooks';
import type { Filter } from '../../lib/filter';
import { limitLabel } from '../../lib/limit';
import { pointInTime, showPoint, useSpan } from '../../lib/span';
import { useUrl } from '../../lib/url';
import { Button, buttonClass, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { Ranges } from '../../ui/ranges';
import { type Column, PagedTable } from '../../ui/table';
import { eventTypes } from './catalogue';
import { WebhookNav } from './nav';

type Event = Schemas['Event'];

// about has what an event is about: the values of its data that say most.
function about(e: Event): string[] {
  const d = e.data;
  return [
    d.owner_id ? d.owner : undefined,
    d.name,
    d.key_prefix,
    d.method && d.path ? `${String(d.method)} ${String(d.path)}` : d.path,
    d.status,
    d.reason,
    limitLabel(d),
    d.message,
    d.revision !== undefined ? `revision ${String(d.revision)}` : undefined,
  ]
    .filter((v) => v !== undefined && v !== null && v !== '')
    .map(String);
}

const About = ({ event }: { event: Event }) =>
  about(event).map((text, i) => (
    <span key={i}>
      {i > 0 && ' · '}
      <bdi>{text}</bdi>
    </span>
  ));

export default function Events() {
  const [url, change] = useUrl<'type' | 'since' | 'until' | 'cursor'>();
  const { since, until, ready } = useSpan();
  const { type, cursor } = url;
  const query = useList(
    '/v1/events',
    { query: { type, since, until, cursor, limit: 50 } },
    { enabled: ready, refetchInterval: cursor ? false : 5_000 },
  );
  const filters: Filter[] = [
    { name: 'type', label: 'Event', values: eventTypes.map((value) => ({ value, label: value })) },
    { name: 'since', label: 'Since', shown: showPoint },
    { name: 'until', label: 'Until', shown: showPoint },
  ];
  const columns: Column<Event>[] = [
    { title: 'Time', cell: (e) => <Time at={e.created_at} /> },
    {
      title: 'Event',
      className: 'w-full max-w-0 @xl:w-auto @xl:max-w-none',
      cell: (e) => (
        <>
          <Link
            to="/events/$eventId"
            params={{ eventId: e.id }}
            className="row-link link block truncate font-mono text-sm whitespace-nowrap"
            title={e.type}>
            {e.type}
          </Link>
          <span className="block truncate text-sm text-muted @xl:hidden">
            <About event={e} />
          </span>
        </>
      ),
    },
    {
      title: 'About',
      className: 'w-full max-w-0 hidden @xl:table-cell',
      cell: (e) => (
        <span className="block truncate" title={about(e).join(' · ')}>
          <About event={e} />
        </span>
      ),
    },
    { title: 'Identifier', className: 'hidden @4xl:table-cell', cell: (e) => <code className="font-mono text-sm text-muted">{e.id}</code> },
  ];
  const filtered = Boolean(type || since || until);
  return (
    <Page title="Webhooks">
      <WebhookNav />
      <Panel
        flush
        title={<FilterBar search={false} filters={filters} placeholder="Filter by event or time (15m, 1h, 7d)" />}
        actions={<Ranges value="" options={['1h', '24h', '7d']} onChange={(r) => change({ since: pointInTime(r), until: undefined })} />}>
        <PagedTable
          label="Events"
          query={query}
          columns={columns}
          rowKey={(e) => e.id}
          empty={
            filtered ? (
              <Empty
                icon="search"
                title="No event matches"
                action={<Button onClick={() => change({ type: undefined, since: undefined, until: undefined })}>Clear the filters</Button>}>
                Events are kept for 7 days.
              </Empty>
            ) : (
              <Empty
                icon="webhook"
                title="No events yet"
                action={
                  <Link to="/events/catalogue" className={buttonClass()}>
                    What makes an event
                  </Link>
                }>
                Events are kept for 7 days, with or without an endpoint that receives them.
              </Empty>
            )
          }
        />
      </Panel>
    </Page>
  );
}
