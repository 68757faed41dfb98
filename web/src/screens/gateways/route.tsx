import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { usePresentCanary } from '../../api/canaries';
import { api, type Answer, type Schemas } from '../../api/client';
import { changed, useList, useRecord } from '../../api/hooks';
import { useNames } from '../../api/names';
import { useRefusal } from '../../api/session';
import { useTraffic } from '../../api/traffic';
import { useUpstreams } from '../../api/upstreams';
import { useEdit } from '../../lib/edit';
import { count, plural } from '../../lib/format';
import { limitText, limitValue, noLimit, perChoices, perOf, perPart, routeFlags, showLimit, showLimits } from '../../lib/limit';
import { callOf } from '../../lib/route';
import { refusals, sinceOf, sum } from '../../lib/traffic';
import { defaultUpstream } from '../../lib/upstream';
import { AsCode } from '../../ui/ascode';
import { Button, Details, Empty, Failure, Id, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { ConfirmDialog } from '../../ui/dialog';
import { Charged } from '../../ui/charged';
import { Form, SelectField, Submit } from '../../ui/form';
import { LimitFields } from '../../ui/limit';
import { Table } from '../../ui/table';
import { toast } from '../../ui/toast';
import { TrafficChart } from '../../ui/trafficchart';
import { RouteConcurrency } from './concurrency';
import { RouteCost } from './cost';
import { useGateway } from './detail';
import { RouteAddresses } from './routeaddresses';
import { AuthEditor, authWords } from './routeauth';
import { RouteHandling } from './routehandling';
import { RouteHeaders } from './routeheaders';
import { RouteSplit } from './routesplit';
import { RouteUpstream } from './routeupstream';
import { RouteValidation } from './routevalidation';
import { Simulation } from './simulation';
import { TryIt } from './try';

type Route = Schemas['Route'];

export default function RoutePage() {
  const { gatewayId, routeId } = useParams({ from: '/gateways/$gatewayId/routes/$routeId' });
  return <RouteDetail key={routeId} gatewayId={gatewayId} routeId={routeId} />;
}

function RouteDetail({ gatewayId, routeId }: { gatewayId: string; routeId: string }) {
  const path = { gateway_id: gatewayId, route_id: routeId };
  const query = useRecord('/v1/gateways/{gateway_id}/routes/{route_id}', { path }, { staleTime: 10_000 });
  const refused = useRefusal('admin', `gateways/${gatewayId}/routes`);
  const write = useRefusal('write', `gateways/${gatewayId}/routes`);
  const [deleting, setDeleting] = useState(false);
  const [editing, setEditing] = useState(false);
  const of = useGateway().query;
  const gateway = of.data?.data;
  const upstreams = useUpstreams(gatewayId);
  const names = upstreams.data?.data.data.map((u) => u.name) ?? [];
  const canary = usePresentCanary(gatewayId);
  const r = query.data?.data;
  if (query.error && !r) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (!query.data || !r || of.isPending || upstreams.isLoading || canary.pending) return <Skeleton className="h-96 w-full" />; // all, so that nothing moves
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 font-mono text-lg font-semibold break-all">
          {r.methods.join(' ')} {r.path}
        </h2>
        {r.auth === 'none' && <Status tone="warn">Public</Status>}
        <span className="ml-auto">
          <Button why={refused} kind="danger" icon="stop" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        </span>
      </div>
      {gateway && <TryIt gateway={gateway} call={callOf(r)} route={r.path} />}
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <LimitEditor key={routeId} first={query.data} />
        <Traffic record={r} />
        <RouteConcurrency key={`concurrency ${routeId}`} first={query.data} />
        <Levels record={r} />
        <RouteCost key={`cost ${routeId}`} first={query.data} />
        <RouteHandling key={`handling ${routeId}`} first={query.data} />
        <RouteHeaders key={`headers ${routeId}`} first={query.data} />
        <RouteAddresses key={`addresses ${routeId}`} first={query.data} />
        <RouteValidation key={`validation ${routeId}`} first={query.data} inherited={gateway?.validate ?? 'off'} />
        {(names.length > 1 || r.upstream !== defaultUpstream) && <RouteUpstream first={query.data} names={names} />}
        {(names.length > 1 || r.split !== null) && <RouteSplit first={query.data} inherited={gateway?.split} />}
        <Panel
          title="Route"
          actions={
            <Button size="sm" why={write} onClick={() => setEditing(true)}>
              Change callers
            </Button>
          }>
          <Details
            rows={[
              ['Identifier', <Id key="id" value={r.route_id} />],
              ['Callers', authWords[r.auth]],
              ['Comes from', { api: 'a single change', spec: 'an OpenAPI document', config: 'a configuration file' }[r.source]],
              ['Limit', showLimits(r)],
              ['Created', <Time key="c" at={r.created_at} />],
            ]}
          />
        </Panel>
      </div>
      {editing && <AuthEditor first={query.data} gateway={gateway} onClose={() => setEditing(false)} />}
      {deleting && <DeleteRoute record={r} onClose={() => setDeleting(false)} />}
    </>
  );
}

// A limit is one field: it is sent as a whole.
const valuesOf = (r: Route) => ({ rate_limit: { ...limitText(r.rate_limit), per: perOf(r.rate_limit) } });
type RouteLimit = ReturnType<typeof valuesOf>['rate_limit'];

// rateOf returns what a call takes for a limit, or null for none.
function rateOf(text: RouteLimit): Record<string, string> | null {
  const limit = limitValue(text);
  if (limit === null) return null;
  return { ...(typeof limit === 'string' ? { sustained: limit } : limit), ...perPart(text.per) };
}

const show = (text: RouteLimit) => {
  const rate = rateOf(text);
  return rate ? showLimit(rate as Route['rate_limit']) : 'none';
};

// LimitEditor changes the limit of a route, and says before what it would have refused.
function LimitEditor({ first }: { first: Answer<Route> }) {
  const id = { gateway_id: first.data.gateway_id, route_id: first.data.route_id };
  const form = useEdit({
    first,
    valuesOf,
    labels: { rate_limit: 'The limit' },
    show,
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id }),
    othersKept: true,
  });
  const refused = useRefusal('write', `gateways/${id.gateway_id}/routes`);
  const limit = form.values.rate_limit;
  const setLimit = (change: Partial<RouteLimit>) => form.set('rate_limit', { ...limit, ...change });
  const rate = rateOf(limit);
  const before = valuesOf(form.base).rate_limit;
  const body = { rate_limit: rate };
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async (answer) => {
        form.begin(answer);
        toast('The limit was saved');
        await changed('/v1/gateways');
      },
    });
  return (
    <Panel title="Rate limit">
      <Form onSubmit={submit}>
        {form.conflict && <Conflict {...form.conflict} />}
        <LimitFields
          value={limit}
          onChange={setLimit}
          error={form.limitError('rate_limit')}
          daily={limit.per !== 'address' || limit.daily !== ''}
        />
        <SelectField label="Counts" value={limit.per} onChange={(per) => setLimit({ per })} options={perChoices} />
        <Simulation gatewayId={id.gateway_id} of={{ route_id: id.route_id }} rate={form.dirty ? rate : null} />
        <Submit
          beside={
            <>
              <AsCode
                command={{
                  cli: [
                    'keygate routes update',
                    `--gateway ${id.gateway_id}`,
                    id.route_id,
                    ...routeFlags(limit, limit.per, before, before.per),
                  ].join(' '),
                  method: 'PATCH',
                  path: `/v1/gateways/${id.gateway_id}/routes/${id.route_id}`,
                  body,
                }}
                why={form.dirty ? null : 'Nothing has been changed yet.'}
              />
              {(limit.sustained || limit.burst || limit.daily) && (
                <Button size="sm" kind="quiet" onClick={() => setLimit(noLimit)}>
                  Remove the limit
                </Button>
              )}
            </>
          }
          label="Save"
          busy={form.busy}
          error={form.rest}
          unchanged={!form.dirty}
          why={refused}
          disabled={form.conflict !== null}
          onCancel={form.dirty ? form.discard : undefined}
        />
      </Form>
    </Panel>
  );
}

function Traffic({ record }: { record: Route }) {
  const traffic = useTraffic({ route_id: record.route_id, gateway_id: record.gateway_id, since: sinceOf('24h') }, '1h', {
    refetchInterval: 60_000,
  });
  const rows = traffic.rows ?? [];
  return (
    <Panel title="Last 24 hours">
      <div className="flex flex-col gap-3">
        <p className="text-muted">
          {traffic.rows ? (
            `${plural(
              sum(rows, (r) => r.requests),
              'request',
            )}, ${count(sum(rows, refusals))} refused, ${count(sum(rows, (r) => r.status_5xx))} failed`
          ) : (
            <Skeleton className="h-4 w-48" />
          )}
        </p>
        <Charged rows={traffic.rows} />
        <TrafficChart label="Requests of the route" traffic={traffic} />
      </div>
    </Panel>
  );
}

const levelsRead = 100; // limits of the gateway

// Levels lists the limits of the route that are in use, and which keys reach them.
function Levels({ record }: { record: Route }) {
  const query = useList(
    '/v1/gateways/{gateway_id}/limits',
    { path: { gateway_id: record.gateway_id }, query: { limit: levelsRead } },
    { refetchInterval: 5_000 },
  );
  const partly = Boolean(query.data?.data.next_cursor);
  const rows = query.data?.data.data.filter((l) => l.route_id === record.route_id);
  const { nameOf } = useNames((rows ?? []).map((l) => ({ id: l.key_id })));
  return (
    <Panel flush title="Limits in use">
      {query.error ? (
        <div className="p-4">
          <Failure error={query.error} />
        </div>
      ) : (
        <Table
          label="Limits in use"
          rows={rows}
          rowKey={(l) => `${l.limit_scope} ${l.limit_name ?? ''} ${l.key_id ?? ''} ${l.owner_id ?? ''}`}
          skeletons={3}
          empty={
            <Empty
              icon="filter"
              title={partly ? `None of the first ${levelsRead} limits in use is of this route` : 'No limit of this route is in use'}>
              {partly && 'The gateway has more of them, which are not shown here.'}
            </Empty>
          }
          columns={[
            {
              title: 'Limit',
              className: 'whitespace-nowrap',
              cell: (l) => (l.limit_scope === 'concurrency' ? 'in flight' : l.limit_scope),
            },
            {
              title: 'Key',
              className: 'w-full max-w-0',
              cell: (l) =>
                l.key_id ? (
                  <Link to="/keys/$keyId" params={{ keyId: l.key_id }} className="row-link link block truncate" title={nameOf(l.key_id)}>
                    <bdi>{nameOf(l.key_id)}</bdi>
                  </Link>
                ) : (
                  <Link
                    to="/requests"
                    search={{ gateway_id: record.gateway_id, route_id: record.route_id, status: '429' }}
                    className="row-link block text-muted hover:text-text">
                    all together
                  </Link>
                ),
            },
            {
              title: 'Left',
              number: true,
              cell: (l) =>
                Number(l.remaining) === 0 ? (
                  <Status tone="warn">0 of {count(l.limit)}</Status>
                ) : (
                  `${count(l.remaining)} of ${count(l.limit)}`
                ),
            },
            {
              title: 'Full again',
              number: true,
              cell: (l) => (l.limit_scope === 'concurrency' ? '–' : <Time at={new Date(Number(l.reset_at) * 1000).toISOString()} />),
            },
          ]}
        />
      )}
    </Panel>
  );
}

function DeleteRoute({ record, onClose }: { record: Route; onClose: () => void }) {
  const navigate = useNavigate();
  return (
    <ConfirmDialog
      title="Delete the route"
      action="Delete the route"
      onClose={onClose}
      run={async () => {
        await api.delete('/v1/gateways/{gateway_id}/routes/{route_id}', {
          path: { gateway_id: record.gateway_id, route_id: record.route_id },
        });
        toast(`Route ${record.path} is deleted`);
        await navigate({ to: '/gateways/$gatewayId/routes', params: { gatewayId: record.gateway_id } });
        await changed('/v1/gateways');
      }}>
      <p>
        Requests to{' '}
        <b className="break-all">
          {record.methods.join(' ')} {record.path}
        </b>{' '}
        that no other route takes are refused with 404 at once.
      </p>
      {record.source !== 'api' && (
        <p>It came from a {record.source === 'spec' ? 'document' : 'file'}: the next push of that brings it back.</p>
      )}
    </ConfirmDialog>
  );
}
