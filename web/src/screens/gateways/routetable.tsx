import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useBusiest } from '../../api/busiest';
import { api, type Schemas } from '../../api/client';
import { changed, useList, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useUpstreams } from '../../api/upstreams';
import type { Filter } from '../../lib/filter';
import { count } from '../../lib/format';
import { useForm } from '../../lib/form';
import {
  anyInFlight,
  inFlightFlag,
  inFlightValue,
  limitValue,
  noLimit,
  perChoices,
  perPart,
  routeFlags,
  showLimits,
} from '../../lib/limit';
import { methodNames } from '../../lib/route';
import { quote } from '../../lib/shell';
import { refusals } from '../../lib/traffic';
import { defaultUpstream } from '../../lib/upstream';
import { useUrl } from '../../lib/url';
import { Button, buttonClass, Empty, Panel, Status } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { ForwardEverything, noRoutes } from '../../ui/forward';
import { ChoicesField, SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { InFlightFields, LimitFields } from '../../ui/limit';
import { type Column, PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { AuthField } from './routeauth';
import { UpstreamSelect } from './routeupstream';

type Route = Schemas['Route'];

const sources: Record<Route['source'], string> = { api: 'separately', spec: 'document', config: 'file' };

// upstreamColumn is shown if a route names another upstream than the default one.
const upstreamColumn: Column<Route> = {
  title: 'Upstream',
  className: 'hidden @md:table-cell max-w-28',
  cell: (r) => (
    <code className={`block truncate font-mono text-sm ${r.upstream === defaultUpstream ? 'text-muted' : ''}`} title={r.upstream}>
      {r.upstream}
    </code>
  ),
};

// RouteTable lists the routes of one gateway.
export function RouteTable({ gatewayId }: { gatewayId: string }) {
  const [{ q, method, cursor }, change] = useUrl<'q' | 'method' | 'cursor'>();
  const [creating, setCreating] = useState(false);
  const refused = useRefusal('write', `gateways/${gatewayId}/routes`);
  const path = { gateway_id: gatewayId };
  const query = useList('/v1/gateways/{gateway_id}/routes', { path, query: { q, method, cursor, limit: 50 } }, { refetchInterval: 30_000 });
  const lastHour = useBusiest({ group_by: 'route', gateway_id: gatewayId });
  const levels = useList('/v1/gateways/{gateway_id}/limits', { path, query: { limit: 100 } }, { refetchInterval: 10_000 });
  const levelOf = (r: Route) =>
    levels.data?.data.data.find((l) => l.route_id === r.route_id && l.limit_scope === (r.rate_limit ? 'route' : 'concurrency'));
  const filters: Filter[] = [{ name: 'method', label: 'Method', values: methodNames.map((m) => ({ value: m, label: m })) }];
  const columns: Column<Route>[] = [
    {
      title: 'Methods',
      className: 'max-w-24 @2xl:max-w-40',
      cell: (r) => (
        <code className="block truncate font-mono text-sm font-semibold" title={r.methods.join(', ')}>
          {r.methods.join(' ')}
        </code>
      ),
    },
    {
      title: 'Path',
      className: 'w-full max-w-0',
      cell: (r) => (
        <Link
          to="/gateways/$gatewayId/routes/$routeId"
          params={{ gatewayId: r.gateway_id, routeId: r.route_id }}
          className="row-link link block truncate font-mono text-sm"
          title={r.path}>
          {r.path}
        </Link>
      ),
    },
    ...(query.data?.data.data.some((r) => r.upstream !== defaultUpstream) ? [upstreamColumn] : []),
    {
      title: 'Auth',
      className: 'hidden @lg:table-cell',
      cell: (r) => (r.auth === 'none' ? <Status tone="warn">Public</Status> : <span className="text-muted">{r.auth}</span>),
    },
    {
      title: 'Limit',
      className: 'hidden @2xl:table-cell max-w-48',
      cell: (r) => (
        <span className="block truncate" title={showLimits(r)}>
          {showLimits(r)}
        </span>
      ),
    },
    {
      title: 'Left now',
      number: true,
      className: 'hidden @4xl:table-cell',
      cell: (r) => {
        const l = levelOf(r);
        return l ? `${count(l.remaining)} of ${count(l.limit)}` : '–';
      },
    },
    { title: 'Requests, 1 h', number: true, cell: (r) => lastHour(r.route_id, (t) => Number(t.requests)) },
    { title: 'Refused', number: true, className: 'hidden @lg:table-cell', cell: (r) => lastHour(r.route_id, (t) => refusals(t as never)) },
    { title: 'From', className: 'hidden @4xl:table-cell', cell: (r) => <span className="text-muted">{sources[r.source]}</span> },
  ];
  const create = (
    <Button icon="plus" why={refused} onClick={() => setCreating(true)}>
      Create a route
    </Button>
  );
  return (
    <>
      <Panel flush title={<FilterBar filters={filters} placeholder="Search routes by path" />} actions={create}>
        <PagedTable
          label="Routes"
          query={query}
          columns={columns}
          rowKey={(r) => r.route_id}
          empty={
            q || method ? (
              <Empty
                icon="search"
                title="No route matches"
                action={<Button onClick={() => change({ q: undefined, method: undefined })}>Clear the filters</Button>}
              />
            ) : (
              <Empty
                icon="route"
                title="No routes"
                action={
                  <>
                    <ForwardEverything gatewayId={gatewayId} />
                    <Link to="/gateways/$gatewayId/push" params={{ gatewayId }} className={buttonClass()}>
                      Push a document
                    </Link>
                  </>
                }>
                {noRoutes} Forward everything, push an OpenAPI document, or create routes one by one.
              </Empty>
            )
          }
        />
      </Panel>
      {creating && <CreateRoute gatewayId={gatewayId} onClose={() => setCreating(false)} />}
    </>
  );
}

function CreateRoute({ gatewayId, onClose }: { gatewayId: string; onClose: () => void }) {
  const form = useForm({
    path: '',
    methods: ['GET'] as string[],
    auth: '', // that of the gateway
    per: 'shared',
    limit: noLimit,
    in_flight: anyInFlight,
    upstream: defaultUpstream,
  });
  const upstreams = useUpstreams(gatewayId).data?.data.data ?? [];
  const gateway = useRecord('/v1/gateways/{gateway_id}', { path: { gateway_id: gatewayId } }).data?.data;
  const v = form.values;
  const limit = limitValue(v.limit);
  const rate = limit === null ? null : { ...(typeof limit === 'string' ? { sustained: limit } : limit), ...perPart(v.per) };
  const concurrency = inFlightValue(v.in_flight);
  const body = {
    path: v.path.trim(),
    methods: v.methods,
    ...(v.auth && { auth: v.auth }),
    ...(rate && { rate_limit: rate }),
    ...(concurrency && { concurrency }),
    ...(v.upstream !== defaultUpstream && { upstream: v.upstream }),
  };
  const cli = [
    'keygate routes create',
    `--gateway ${gatewayId}`,
    `--path ${quote(body.path || 'PATH')}`,
    v.methods.length > 0 && `--method ${v.methods.join(',')}`,
    v.auth && `--auth ${v.auth}`,
    ...routeFlags(v.limit, v.per),
    concurrency && `--concurrency ${quote(inFlightFlag(v.in_flight))}`,
    v.upstream !== defaultUpstream && `--upstream ${v.upstream}`,
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <FormDialog
      title="Create a route"
      wide
      form={form}
      submit={() => {
        void form.submit(async () => {
          await api.post('/v1/gateways/{gateway_id}/routes', { path: { gateway_id: gatewayId }, body });
          toast(`Route ${body.path} is created`);
          await changed('/v1/gateways');
          onClose();
        });
      }}
      command={{ cli, method: 'POST', path: `/v1/gateways/${gatewayId}/routes`, body }}
      label="Create the route"
      onClose={onClose}>
      <TextField
        label="Path"
        required
        mono
        value={v.path}
        onChange={(t) => form.set('path', t)}
        error={form.fieldError('path')}
        placeholder="/orders/{id}"
      />
      <ChoicesField
        label="Methods"
        choices={methodNames}
        value={v.methods}
        onChange={(methods) => form.set('methods', methods)}
        error={form.fieldError('methods')}
      />
      <div className="grid gap-4 sm:grid-cols-2">
        <AuthField value={v.auth} onChange={(t) => form.set('auth', t)} error={form.fieldError('auth')} gateway={gateway} />
        <SelectField label="Limit counts" value={v.per} onChange={(t) => form.set('per', t)} options={perChoices} />
      </div>
      <LimitFields
        value={v.limit}
        onChange={(l) => form.set('limit', l)}
        error={form.limitError('rate_limit')}
        daily={v.per !== 'address' || v.limit.daily !== ''}
      />
      <InFlightFields value={v.in_flight} onChange={(c) => form.set('in_flight', c)} error={form.fieldError('concurrency')} />
      {upstreams.length > 1 && (
        <UpstreamSelect
          names={upstreams.map((u) => u.name)}
          value={v.upstream}
          onChange={(u) => form.set('upstream', u)}
          error={form.fieldError('upstream')}
        />
      )}
      <p className="text-sm text-muted">The next push of a document replaces all routes, this one too.</p>
    </FormDialog>
  );
}
