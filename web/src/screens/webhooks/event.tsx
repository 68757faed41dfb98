import { Link, useParams } from '@tanstack/react-router';
import { useGateways } from '../../api/gateways';
import { useRecord } from '../../api/hooks';
import { useNames } from '../../api/names';
import { useRefusal } from '../../api/session';
import { stringify } from '../../api/json';
import { buttonClass, Code, Details, Empty, Failure, Id, Page, Panel, Skeleton, Time } from '../../ui/basic';
import { type Column, Table } from '../../ui/table';
import { catalogue } from './catalogue';
import { useWebhooks } from './log';
import { type Delivery, DeliveryState, outcome, triggers } from './state';

export default function EventDetail() {
  const { eventId } = useParams({ from: '/events/$eventId' });
  const query = useRecord('/v1/events/{event_id}', { path: { event_id: eventId } });
  const e = query.data?.data;
  const { urlOf, hostOf } = useWebhooks();
  const { nameOf } = useGateways();
  const keys = useNames([{ id: typeof e?.data.key_id === 'string' ? e.data.key_id : null }]);
  const refused = useRefusal('read', 'webhook-deliveries');
  const deliveries = useRecord(
    '/v1/webhook-deliveries',
    { query: { event_id: eventId, limit: 50 } },
    { enabled: !refused, refetchInterval: 5_000 },
  );
  if (query.error?.status === 404) {
    return (
      <Page title="Event">
        <Panel>
          <Empty
            icon="webhook"
            title="This event is not kept"
            action={
              <Link to="/events" className={buttonClass()}>
                All events
              </Link>
            }>
            Events are kept for 7 days. What was sent is in its deliveries, while they are kept.
          </Empty>
        </Panel>
        {!refused && (
          <p>
            <Link to="/deliveries" search={{ event_id: eventId }} className="link">
              Deliveries of this event
            </Link>
          </p>
        )}
      </Page>
    );
  }
  if (query.error && !e)
    return (
      <Page title="Event">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!e)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-64" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const columns: Column<Delivery>[] = [
    { title: 'Created', cell: (d) => <Time at={d.created_at} /> },
    { title: 'State', cell: (d) => <DeliveryState state={d.state} /> },
    {
      title: 'Endpoint',
      className: 'w-1/2 max-w-0',
      cell: (d) => (
        <Link
          to="/deliveries/$deliveryId"
          params={{ deliveryId: d.delivery_id }}
          className="row-link link block truncate"
          title={urlOf(d.webhook_id) ?? d.webhook_id}>
          {hostOf(d.webhook_id)}
        </Link>
      ),
    },
    { title: 'Caused by', className: 'hidden whitespace-nowrap @2xl:table-cell', cell: (d) => triggers[d.trigger] },
    {
      title: 'Last response',
      className: 'w-1/2 max-w-0 hidden @xl:table-cell',
      cell: (d) => {
        const last = d.attempts.at(-1);
        return <span className="block truncate">{last ? outcome(last) : '–'}</span>;
      },
    },
  ];
  const payload = stringify(e, 2);
  const known = catalogue[e.type];
  return (
    <Page title={<span className="font-mono text-lg">{e.type}</span>}>
      <Panel title="Event">
        <Details
          rows={[
            ['Identifier', <Id key="id" value={e.id} />],
            ['Time', <Time key="time" at={e.created_at} />],
            ['What it means', known ? known.text : '–'],
            ...(typeof e.data.key_id === 'string'
              ? [
                  [
                    'Key',
                    <Link key="key" to="/keys/$keyId" params={{ keyId: e.data.key_id }} className="link break-words">
                      <bdi>{keys.known(e.data.key_id) ? keys.nameOf(e.data.key_id) : String(e.data.key_prefix ?? e.data.key_id)}</bdi>
                    </Link>,
                  ] as [string, React.ReactNode],
                ]
              : []),
            ...(typeof e.data.owner_id === 'string'
              ? [
                  [
                    'Owner',
                    <Link key="owner" to="/owners/$ownerId" params={{ ownerId: e.data.owner_id }} className="link break-words">
                      <bdi>{String(e.data.owner)}</bdi>
                    </Link>,
                  ] as [string, React.ReactNode],
                ]
              : []),
            ...(typeof e.data.gateway_id === 'string'
              ? [
                  [
                    'Gateway',
                    <Link key="gateway" to="/gateways/$gatewayId" params={{ gatewayId: e.data.gateway_id }} className="link break-words">
                      <bdi>{nameOf(e.data.gateway_id)}</bdi>
                    </Link>,
                  ] as [string, React.ReactNode],
                ]
              : []),
            ...(typeof e.data.request_id === 'string'
              ? [
                  [
                    'Request',
                    <Link
                      key="request"
                      to="/requests/$requestId"
                      params={{ requestId: e.data.request_id }}
                      className="link font-mono text-sm break-all">
                      {e.data.method && e.data.path ? `${String(e.data.method)} ${String(e.data.path)}` : e.data.request_id}
                    </Link>,
                  ] as [string, React.ReactNode],
                ]
              : []),
          ]}
        />
      </Panel>
      <Panel
        title="Deliveries"
        flush
        actions={
          !refused && (
            <Link to="/deliveries" search={{ event_id: eventId }} className={buttonClass()}>
              Show them in the log
            </Link>
          )
        }>
        {refused ? (
          <Empty icon="stop" title="Not allowed">
            {refused}
          </Empty>
        ) : deliveries.error ? (
          <div className="p-4">
            <Failure error={deliveries.error} />
          </div>
        ) : (
          <Table
            label="Deliveries of this event"
            columns={columns}
            rows={deliveries.data?.data.data}
            skeletons={2}
            rowKey={(d) => d.delivery_id}
            empty={
              <Empty icon="webhook" title="No delivery of this event">
                No endpoint received events of this type at that time, or its deliveries are no longer kept.
              </Empty>
            }
          />
        )}
      </Panel>
      <Panel title="Payload">
        <Code text={payload} label="Payload" />
      </Panel>
    </Page>
  );
}
