import { Link, useNavigate } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { useCallLine } from '../../api/address';
import { usePresentCanary } from '../../api/canaries';
import { api, type Schemas } from '../../api/client';
import { useFirstCall } from '../../api/firstcall';
import { changed, useList, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useTraffic } from '../../api/traffic';
import { useUpstreams } from '../../api/upstreams';
import { count, percent, plural, short } from '../../lib/format';
import { sinceOf, sum } from '../../lib/traffic';
import { countWords, isPlain } from '../../lib/upstream';
import { Button, buttonClass, Code, Id, Panel, Skeleton, Status } from '../../ui/basic';
import { Charged } from '../../ui/charged';
import { ConfirmDialog } from '../../ui/dialog';
import { ForwardEverything, noRoutes } from '../../ui/forward';
import { Icon, type IconName } from '../../ui/icon';
import { toast } from '../../ui/toast';
import { TrafficChart } from '../../ui/trafficchart';
import { CanaryLink, StateOf } from '../canaries/state';
import { useGateway } from './detail';
import { TryIt } from './try';
import { AddLinks, UpstreamTable } from './flowupstreams';

// Flow shows a gateway as the way of a request: host, key, limits, upstream.
export default function Flow() {
  const { gatewayId, query } = useGateway();
  const callLine = useCallLine();
  const [deleting, setDeleting] = useState(false);
  const refused = useRefusal('admin', `gateways/${gatewayId}`);
  const traffic = useTraffic({ gateway_id: gatewayId, since: sinceOf('1h') }, '1m', { refetchInterval: 10_000 });
  const levels = useList(
    '/v1/gateways/{gateway_id}/limits',
    { path: { gateway_id: gatewayId }, query: { limit: 25 } },
    { refetchInterval: 10_000 },
  );
  const keys = useList('/v1/keys', { query: { gateway_id: gatewayId, state: 'active', limit: 100 } });
  const first = useFirstCall(gatewayId);
  const upstreams = useUpstreams(gatewayId);
  const present = usePresentCanary(gatewayId);
  const repository = useRecord('/v1/gateways/{gateway_id}/repository', { path: { gateway_id: gatewayId } }, { retry: false });
  const g = query.data?.data;
  const { rows } = traffic;
  // All at once: nothing moves, and nothing is said to be unknown that is on its way.
  if (
    !g ||
    traffic.pending ||
    levels.isPending ||
    keys.isPending ||
    repository.isPending ||
    upstreams.isLoading ||
    present.pending ||
    first.pending
  )
    return <Skeleton className="h-96 w-full" />;
  const total = rows ? sum(rows, (r) => r.requests) : 0;
  const errors = rows ? sum(rows, (r) => r.upstream_errors) : 0;
  const limited = rows ? sum(rows, (r) => r.limited) : 0;
  const unauthorized = rows ? sum(rows, (r) => Number(r.unauthorized) + Number(r.forbidden)) : 0;
  const global = levels.data?.data.data.find((l) => l.limit_scope === 'global');
  // What could not be read is not shown as nothing.
  const known = (text: string) => (rows ? text : 'Traffic of the last hour is not known');
  const restricted = keys.data?.data.data.length;
  const all = upstreams.data?.data.data;
  const plain = !all || isPlain(all);
  const more = keys.data?.data.next_cursor ? ' or more' : '';
  return (
    <>
      {first.none && (
        <section
          aria-label="No routes"
          className="flex flex-wrap items-center gap-x-4 gap-y-3 rounded-lg border border-warn bg-warn-soft px-4 py-3">
          <Icon name="warn" className="text-warn" />
          <p className="min-w-60 flex-1">{noRoutes}</p>
          <div className="flex flex-wrap items-center gap-3">
            <ForwardEverything gatewayId={gatewayId} />
            <Link to="/gateways/$gatewayId/push" params={{ gatewayId }} className={buttonClass()}>
              Push a document
            </Link>
          </div>
        </section>
      )}
      <ol
        aria-label="The way of a request"
        className={`grid grid-cols-[minmax(0,1fr)] gap-3 ${plain ? 'lg:grid-cols-4' : 'lg:grid-cols-3'}`}>
        <Box icon="gateway" title="Host" next="right">
          <code className="block truncate font-mono text-sm" title={g.hostname}>
            {g.hostname}
          </code>
          <p className="text-muted">{g.default ? 'and any other host name: it is the default' : 'Only calls of this host name reach it'}</p>
          <Link to="/gateways/$gatewayId/routes" params={{ gatewayId }} className="link">
            Routes
          </Link>
        </Box>
        <Box icon="key" title="Key" next="right">
          <p>
            {restricted === undefined
              ? 'Its keys are not known'
              : restricted > 0
                ? `${plural(restricted, 'key')}${more} for this gateway only`
                : 'Keys for all gateways'}
          </p>
          <p className="text-muted">
            {known(unauthorized > 0 ? `${count(unauthorized)} refused in the last hour` : 'No key refused in the last hour')}
          </p>
          <Link to="/keys" search={{ gateway_id: gatewayId }} className="link">
            Keys of this gateway
          </Link>
          {restricted === 0 && (
            <Link to="/keys" search={{ create: '1' }} className="link">
              Create a key
            </Link>
          )}
        </Box>
        <Box icon="filter" title="Limits" next={plain ? 'right' : 'down'}>
          <p>
            {g.global_rate_limit?.sustained ? `All requests: ${g.global_rate_limit.sustained}` : 'No limit for all requests'}
            {global && g.global_rate_limit && <span className="text-muted"> · {short(global.remaining)} left now</span>}
          </p>
          <p className="text-muted">
            {known(limited > 0 ? `${count(limited)} refused in the last hour` : 'No limit exceeded in the last hour')}
          </p>
          <Link to="/gateways/$gatewayId/settings" params={{ gatewayId }} className="link">
            Change the limit
          </Link>
        </Box>
        <Box icon="external" title={plain ? 'Upstream' : 'Upstreams'} wide={!plain}>
          {plain ? (
            <code className="block truncate font-mono text-sm" title={g.upstream_url}>
              {g.upstream_url}
            </code>
          ) : (
            <p>{countWords(all)}</p>
          )}
          {upstreams.error && <p className="text-muted">Whether it has other targets is not known</p>}
          {errors > 0 ? (
            <p>
              <Status tone="bad">{percent(errors, total)} errors in the last hour</Status>
            </p>
          ) : total > 0 ? (
            <p>
              <Status tone="ok">No errors in the last hour</Status>
            </p>
          ) : (
            <p className="text-muted">{known('No requests in the last hour')}</p>
          )}
          {errors > 0 && (
            <Link to="/requests" search={{ gateway_id: gatewayId }} className="link">
              Why they failed
            </Link>
          )}
          {present.canary && (
            <p className="flex flex-wrap items-center gap-2">
              <CanaryLink gatewayId={gatewayId} canary={present.canary} />
              <StateOf canary={present.canary} />
            </p>
          )}
          {!plain && <UpstreamTable gatewayId={gatewayId} upstreams={all} />}
          <AddLinks gatewayId={gatewayId} />
        </Box>
      </ol>
      <TryIt gateway={g} call={first.call} />
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
        <Panel title="Last hour">
          <div className="flex flex-col gap-3">
            <Charged rows={rows} />
            <TrafficChart label="Requests of the gateway in the last hour" traffic={traffic} />
          </div>
        </Panel>
        <div className="flex flex-col gap-4">
          <Panel title="Call it">
            {first.none ? (
              <p className="text-muted">There is nothing to call until it has a route.</p>
            ) : (
              <>
                <Code label="A call of this gateway" text={callLine(g, 'kg_…', first.call)} wrap />
                <p className="mt-2 text-sm text-muted">
                  Replace kg_… by your key. Where the host name does not resolve, send the call to the address of the server, with{' '}
                  <code className="font-mono break-all">Host: {g.hostname}</code>.
                </p>
              </>
            )}
          </Panel>
          <Panel title="About">
            <div className="flex flex-col gap-2">
              <Id value={g.gateway_id} />
              <p className="flex items-center gap-2">
                <Icon name="branch" className="text-muted" />
                {repository.data ? (
                  <Link to="/gateways/$gatewayId/repository" params={{ gatewayId }} className="link">
                    {repository.data.data.state === 'error' ? 'Repository: the last sync failed' : `Follows ${repository.data.data.branch}`}
                  </Link>
                ) : (
                  <span className="text-muted">
                    {repository.error?.status === 404 ? 'No repository connected' : 'Its repository is not known'}
                  </span>
                )}
              </p>
              <p className="text-muted">
                {g.revision ? (
                  <>
                    Revision{' '}
                    <Link to="/gateways/$gatewayId/revisions" params={{ gatewayId }} className="link">
                      {g.revision}
                    </Link>
                  </>
                ) : (
                  'No revision yet'
                )}
              </p>
              <div className="mt-2">
                <Button kind="danger" icon="stop" why={refused} onClick={() => setDeleting(true)}>
                  Delete the gateway
                </Button>
              </div>
            </div>
          </Panel>
        </div>
      </div>
      {deleting && (
        <DeleteGateway
          record={g}
          keys={
            restricted === undefined
              ? 'The keys for this gateway only are revoked; how many there are is not known.'
              : restricted === 0
                ? 'No key is for this gateway only.'
                : restricted === 1
                  ? 'The 1 key for this gateway only is revoked.'
                  : `The ${restricted}${more} keys for this gateway only are revoked.`
          }
          onClose={() => setDeleting(false)}
        />
      )}
    </>
  );
}

function Box({
  icon,
  title,
  next,
  wide,
  children,
}: {
  icon: IconName;
  title: string;
  next?: 'right' | 'down'; // where the way goes on
  wide?: boolean;
  children: ReactNode;
}) {
  return (
    <li className={`relative flex min-w-0 flex-col gap-1 rounded-lg border border-line bg-surface p-4 ${wide ? 'lg:col-span-full' : ''}`}>
      <h2 className="flex items-center gap-2 font-semibold">
        <Icon name={icon} className="text-accent" />
        {title}
      </h2>
      {children}
      {next === 'right' && (
        <Icon name="right" className="absolute top-1/2 -right-[14px] z-10 hidden -translate-y-1/2 text-muted lg:block" />
      )}
      {next === 'down' && (
        <Icon name="down" className="absolute -bottom-[14px] left-1/2 z-10 hidden -translate-x-1/2 text-muted lg:block" />
      )}
    </li>
  );
}

function DeleteGateway({ record, keys, onClose }: { record: Schemas['Gateway']; keys: string; onClose: () => void }) {
  const first = useList('/v1/gateways/{gateway_id}/routes', { path: { gateway_id: record.gateway_id }, query: { limit: 100 } }).data?.data;
  const routes = first
    ? `its ${plural(first.data.length, 'route')}${first.next_cursor ? ' or more' : ''} and their limits`
    : 'its routes and their limits';
  const navigate = useNavigate();
  const run = async () => {
    await api.delete('/v1/gateways/{gateway_id}', { path: { gateway_id: record.gateway_id } });
    toast(`Gateway “${record.name}” is deleted`);
    await navigate({ to: '/gateways' });
    await changed('/v1/gateways', '/v1/keys');
  };
  return (
    <ConfirmDialog title="Delete the gateway" action="Delete the gateway" typed={record.name} onClose={onClose} run={run}>
      <p>
        This ends <b>{record.name}</b>: {routes}, its revisions, and its repository connection. {keys}
      </p>
      <p>
        Requests to <code className="font-mono break-all">{record.hostname}</code> are refused at once. This cannot be undone.
      </p>
    </ConfirmDialog>
  );
}
