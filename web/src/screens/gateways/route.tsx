import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { api, type Answer, ApiError, type Schemas } from '../../api/client';
import { changed, useList, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { count, plural, short } from '../../lib/format';
import { limitValue, type LimitText, noLimit, routeFlags, showLimit } from '../../lib/limit';
import { callOf } from '../../lib/route';
import { refusals, sinceOf, startOf, sum } from '../../lib/traffic';
import { AsCode } from '../../ui/ascode';
import { Button, Details, Empty, Failure, Id, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { Chart } from '../../ui/chart';
import { Conflict } from '../../ui/conflict';
import { ConfirmDialog } from '../../ui/dialog';
import { SelectField, Submit } from '../../ui/form';
import { LimitFields } from '../../ui/limit';
import { Table } from '../../ui/table';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';
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
  const [deleting, setDeleting] = useState(false);
  const gateway = useGateway().query.data?.data;
  const r = query.data?.data;
  if (query.error && !r) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (!query.data || !r) return <Skeleton className="h-96 w-full" />;
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 font-mono text-lg font-semibold break-all">
          {r.methods.join(' ')} {r.path}
        </h2>
        {r.auth === 'none' && <Status tone="warn">Public</Status>}
        <span className="ml-auto">
          <Button why={refused} icon="stop" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        </span>
      </div>
      {gateway ? <TryIt gateway={gateway} call={callOf(r)} route={r.path} /> : <Skeleton className="h-48 w-full" />}
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <LimitEditor key={routeId} first={query.data} />
        <Traffic record={r} />
        <Levels record={r} />
        <Panel title="Route">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={r.route_id} />],
              ['Callers', r.auth === 'none' ? 'everybody' : 'need a key'],
              ['Comes from', { api: 'a single change', spec: 'an OpenAPI document', config: 'a configuration file' }[r.source]],
              ['Limit', showLimit(r.rate_limit)],
              ['Created', <Time key="c" at={r.created_at} />],
            ]}
          />
        </Panel>
      </div>
      {deleting && <DeleteRoute record={r} onClose={() => setDeleting(false)} />}
    </>
  );
}

const textOf = (r: Route): LimitText =>
  r.rate_limit ? { sustained: r.rate_limit.sustained ?? '', burst: r.rate_limit.burst ?? '', daily: r.rate_limit.daily ?? '' } : noLimit;
// A limit is one field: it is sent as a whole.
const valuesOf = (r: Route) => ({ rate_limit: { ...textOf(r), per: r.rate_limit?.per === 'key' ? 'key' : 'shared' } });
type RouteLimit = ReturnType<typeof valuesOf>['rate_limit'];

// rateOf returns what a call takes for a limit, or null for none.
function rateOf(text: RouteLimit): Record<string, string> | null {
  const limit = limitValue(text);
  if (limit === null) return null;
  return { ...(typeof limit === 'string' ? { sustained: limit } : limit), ...(text.per === 'key' && { per: 'key' }) };
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
  });
  const refused = useRefusal('write', `gateways/${id.gateway_id}/routes`);
  const limit = form.values.rate_limit;
  const setLimit = (change: Partial<RouteLimit>) => form.set('rate_limit', { ...limit, ...change });
  const rate = rateOf(limit);
  const before = valuesOf(form.base).rate_limit;
  const body = { rate_limit: rate };
  const submit = () =>
    form.save({
      unchanged: () => toast('There was nothing to save'),
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async (answer) => {
        form.begin(answer);
        toast('The limit was saved');
        await changed('/v1/gateways');
      },
    });
  return (
    <Panel title="Rate limit">
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}>
        {form.conflict && <Conflict {...form.conflict} />}
        <LimitFields
          value={limit}
          onChange={setLimit}
          error={(part) =>
            form.fieldError(`rate_limit.${part}`) ??
            (part === 'sustained' ? form.error?.fields.find((f) => f.field === 'rate_limit')?.message : undefined)
          }
        />
        <SelectField
          label="Counts"
          value={limit.per}
          onChange={(per) => setLimit({ per })}
          options={[
            { value: 'shared', label: 'All keys together' },
            { value: 'key', label: 'Each key on its own' },
          ]}
        />
        <Simulation gatewayId={id.gateway_id} routeId={id.route_id} rate={form.dirty ? rate : null} />
        <div className="flex flex-wrap items-center gap-2">
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
        </div>
        <Submit
          label="Save"
          busy={form.busy}
          error={form.error}
          why={refused}
          disabled={form.conflict !== null}
          onCancel={form.dirty ? form.discard : undefined}
        />
      </form>
    </Panel>
  );
}

// Simulation says what a limit would have refused in the last 24 hours (contract, section 7).
function Simulation({ gatewayId, routeId, rate }: { gatewayId: string; routeId: string; rate: Record<string, string> | null }) {
  const refused = useRefusal('write', `gateways/${gatewayId}/limits`);
  const [answer, setAnswer] = useState<Schemas['Simulation'] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const text = JSON.stringify(rate);
  useEffect(() => {
    setAnswer(null);
    setError(null);
    const asked = JSON.parse(text) as Record<string, string> | null;
    if (!asked || refused) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      api
        .post('/v1/gateways/{gateway_id}/limits/simulate', {
          path: { gateway_id: gatewayId },
          body: { route_id: routeId, rate_limit: asked },
          signal: stop.signal,
        })
        .then(
          (a) => setAnswer(a.data),
          (e: unknown) => {
            if (e instanceof ApiError) setError(e);
          },
        );
    }, 400);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, gatewayId, routeId, refused]);
  if (!rate) return <p className="min-h-5 text-muted">Change the limit to see what it would have refused in the last 24 hours.</p>;
  if (refused) return <p className="min-h-5 text-muted">{refused}</p>;
  if (error)
    return error.status === 422 ? (
      <p className="min-h-5 text-muted">Enter a limit such as 100/s to see what it would have refused.</p>
    ) : (
      <Failure error={error} />
    );
  return (
    <div role="status" className="flex min-h-5 flex-col gap-1">
      {!answer ? (
        <p className="text-muted">Replaying the last 24 hours…</p>
      ) : (
        <>
          <p>
            Last 24 h: <b>{count(answer.refused)}</b> of {plural(answer.requests, 'request')} would have been refused
            {answer.keys.length > 0 && `, ${plural(answer.keys.length, 'key')}`}.
          </p>
          {answer.incomplete_reason && <p className="text-sm text-warn">Incomplete: {answer.incomplete_reason}.</p>}
          {answer.keys.slice(0, 5).map((k) => (
            <p key={k.key_id ?? ''} className="text-sm text-muted">
              {k.key_id ? (
                <Link to="/keys/$keyId" params={{ keyId: k.key_id }} className="link font-mono">
                  {k.key_id}
                </Link>
              ) : (
                'without a key'
              )}
              : {count(k.refused)} refused, first <Time at={k.first_at} />
            </p>
          ))}
        </>
      )}
    </div>
  );
}

function Traffic({ record }: { record: Route }) {
  const query = useRecord(
    '/v1/reports/traffic',
    { query: { route_id: record.route_id, gateway_id: record.gateway_id, since: sinceOf('24h'), interval: '1h' } },
    { refetchInterval: 60_000 },
  );
  const rows = query.data?.data.data;
  return (
    <Panel title="Last 24 hours">
      {query.error ? (
        <Failure error={query.error} />
      ) : !rows ? (
        <Skeleton className="h-60 w-full" />
      ) : (
        <div className="flex flex-col gap-3">
          <p className="text-muted">
            {plural(
              sum(rows, (r) => r.requests),
              'request',
            )}
            , {count(sum(rows, refusals))} refused, {count(sum(rows, (r) => r.status_5xx))} failed
          </p>
          <Chart
            label="Requests of the route"
            times={rows.map(startOf)}
            whole
            format={short}
            series={[
              { label: 'Requests', color: '--chart-1', values: rows.map((r) => Number(r.requests)) },
              { label: 'Refused', color: '--chart-2', values: rows.map(refusals) },
              { label: 'Errors', color: '--chart-4', values: rows.map((r) => Number(r.status_5xx)) },
            ]}
          />
        </div>
      )}
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
          rowKey={(l) => `${l.limit_scope} ${l.key_id ?? ''}`}
          skeletons={3}
          empty={
            <Empty
              icon="filter"
              title={partly ? `None of the first ${levelsRead} limits in use is of this route` : 'No limit of this route is in use'}>
              {partly && 'The gateway has more of them, which are not shown here.'}
            </Empty>
          }
          columns={[
            { title: 'Limit', cell: (l) => l.limit_scope },
            {
              title: 'Key',
              className: 'max-w-48',
              cell: (l) =>
                l.key_id ? (
                  <Link to="/keys/$keyId" params={{ keyId: l.key_id }} className="link block truncate font-mono text-sm">
                    {l.key_id}
                  </Link>
                ) : (
                  <span className="text-muted">all</span>
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
            { title: 'Full again', number: true, cell: (l) => <Time at={new Date(Number(l.reset_at) * 1000).toISOString()} /> },
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
