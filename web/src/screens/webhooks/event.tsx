import { Link, useParams } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { stringify } from '../../api/json';
import { Code, Details, Empty, Failure, Id, Page, Panel, Skeleton, Time } from '../../ui/basic';
import { type Column, Table } from '../../ui/table';
import { catalogue } from './catalogue';
import { useWebhooks } from './log';
import { type Delivery, DeliveryState, outcome, triggers } from './state';

const minute = 60_000;

export default function EventDetail() {
  const { eventId } = useParams({ from: '/events/$eventId' });
  const query = useRecord('/v1/events/{event_id}', { path: { event_id: eventId } });
  const e = query.data?.data;
  const { urlOf, hostOf } = useWebhooks();
  // The API has no filter for one event: its deliveries are those of its type that begin with it, and the
  // newest ones, where redeliveries are.
  const at = Date.parse(e?.created_at ?? '') || 0;
  const span = { event_type: e?.type, since: new Date(at - 1_000).toISOString(), limit: 100 };
  const refused = useRefusal('read', 'webhook-deliveries');
  const first = useRecord('/v1/webhook-deliveries', { query: { ...span, until: new Date(at + minute).toISOString() } }, { enabled: Boolean(e) && !refused, refetchInterval: 5_000 });
  const newest = useRecord('/v1/webhook-deliveries', { query: span }, { enabled: Boolean(e) && !refused, refetchInterval: 5_000 });
  if (query.error && !e) return <Page title="Event"><Failure error={query.error} retry={() => void query.refetch()} /></Page>;
  if (!e) return <Page key="loading" title={<Skeleton className="h-6 w-64" />}><Panel><Skeleton className="h-60 w-full" /></Panel></Page>;
  const found = new Map<string, Delivery>();
  for (const d of [...(newest.data?.data.data ?? []), ...(first.data?.data.data ?? [])]) if (d.event_id === eventId) found.set(d.delivery_id, d);
  const rows = first.data && newest.data ? [...found.values()] : undefined;
  const partial = Boolean(first.data?.data.next_cursor || newest.data?.data.next_cursor);
  const failed = first.error ?? newest.error;
  const columns: Column<Delivery>[] = [
    { title: 'Created', className: 'w-24', cell: (d) => <Time at={d.created_at} /> },
    { title: 'State', className: 'w-28', cell: (d) => <DeliveryState state={d.state} /> },
    { title: 'Endpoint', className: 'max-w-40 sm:max-w-80', cell: (d) => <Link to="/deliveries/$deliveryId" params={{ deliveryId: d.delivery_id }} className="link block truncate" title={urlOf(d.webhook_id) ?? d.webhook_id}>{hostOf(d.webhook_id)}</Link> },
    { title: 'Caused by', className: 'hidden md:table-cell', cell: (d) => triggers[d.trigger] },
    { title: 'Last answer', className: 'max-w-56 hidden sm:table-cell', cell: (d) => { const last = d.attempts.at(-1); return <span className="block truncate">{last ? outcome(last) : '–'}</span>; } },
  ];
  const payload = stringify(e, 2);
  const known = catalogue[e.type];
  return (
    <Page title={<span className="font-mono text-lg">{e.type}</span>}>
      <Panel title="Event">
        <Details rows={[
          ['Identifier', <Id key="id" value={e.id} />],
          ['Time', <Time key="time" at={e.created_at} />],
          ['What it means', known ? known.text : '–'],
          ...(typeof e.data.key_id === 'string' ? [['Key', <Link key="key" to="/keys/$keyId" params={{ keyId: e.data.key_id }} className="link font-mono text-sm break-all">{String(e.data.key_prefix ?? e.data.key_id)}</Link>] as [string, React.ReactNode]] : []),
          ...(typeof e.data.gateway_id === 'string' ? [['Gateway', <Link key="gateway" to="/gateways/$gatewayId" params={{ gatewayId: e.data.gateway_id }} className="link font-mono text-sm break-all">{e.data.gateway_id}</Link>] as [string, React.ReactNode]] : []),
          ...(typeof e.data.request_id === 'string' ? [['Request', <Link key="request" to="/requests/$requestId" params={{ requestId: e.data.request_id }} className="link font-mono text-sm break-all">{e.data.request_id}</Link>] as [string, React.ReactNode]] : []),
        ]} />
      </Panel>
      <Panel title="Deliveries" flush>
        {refused ? <Empty icon="stop" title="Not allowed">{refused}</Empty> : failed ? <div className="p-4"><Failure error={failed} /></div> : (
          <Table label="Deliveries of this event" columns={columns} rows={rows} skeletons={2} rowKey={(d) => d.delivery_id}
            empty={<Empty icon="webhook" title="No delivery of this event">No endpoint received events of this type at that time, or its deliveries are no longer kept.</Empty>} />
        )}
        {partial && <p className="border-t border-line px-4 py-2 text-muted">There are many deliveries of this type. Further ones of this event may be in <Link to="/deliveries" search={{ event_type: e.type, since: new Date(at - 1_000).toISOString() }} className="link">the log</Link>.</p>}
      </Panel>
      <Panel title="Payload"><Code text={payload} label="Payload" /></Panel>
    </Page>
  );
}
