import { useEffect, useState } from 'react';
import { useGateways } from '../../api/gateways';
import { useList, useRecord } from '../../api/hooks';
import { type Ref, useNames } from '../../api/names';
import { useAccount, useRefusal } from '../../api/session';
import { useTypedKey } from '../../api/typed';
import type { Filter } from '../../lib/filter';
import { count } from '../../lib/format';
import { pointInTime, showPoint, useSpan } from '../../lib/span';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Status } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { Icon } from '../../ui/icon';
import { Ranges } from '../../ui/ranges';
import { PagedTable, Table } from '../../ui/table';
import { type Line, lineKey, requestColumns } from './columns';
import { useTail } from './tail';

const statuses = [
  ['401', '401 key missing or not valid'],
  ['403', '403 not allowed by the key'],
  ['404', '404 no route'],
  ['405', '405 no route for the method'],
  ['429', '429 limit'],
  ['500', '500 server error'],
  ['502', '502 upstream not reached'],
  ['503', '503 unavailable'],
  ['504', '504 upstream too slow'],
].map(([value, label]) => ({ value: value ?? '', label: label ?? '' }));

type Names = 'status' | 'result' | 'gateway_id' | 'route_id' | 'key_id' | 'since' | 'until' | 'live' | 'cursor';
const nothing = {
  status: undefined,
  result: undefined,
  gateway_id: undefined,
  route_id: undefined,
  key_id: undefined,
  since: undefined,
  until: undefined,
};

// What is listed in place of refused and failed requests, by the result.
const keptFor: Record<string, { title: string; what: string }> = {
  charged: {
    title: 'Requests that were charged',
    what: 'Requests of the last 24 hours that have a cost and were neither refused nor failed, at most 100 of a second.',
  },
  retried: {
    title: 'Requests with several attempts',
    what: 'Requests of the last 24 hours that were sent to several targets of their upstream, whatever their end.',
  },
};

export default function Requests() {
  const [url, change] = useUrl<Names>();
  const { gateways, nameOf } = useGateways();
  const live = Boolean(url.live);
  const kept = keptFor[url.result ?? ''];
  const account = useAccount();
  const noGateways = useRefusal('read', 'gateways');
  const noKeys = useRefusal('read', 'keys');
  const route = useRecord(
    '/v1/gateways/{gateway_id}/routes/{route_id}',
    { path: { gateway_id: url.gateway_id ?? '', route_id: url.route_id ?? '' } },
    { enabled: Boolean(url.gateway_id && url.route_id?.startsWith('rt_')) && !noGateways, staleTime: 60_000, retry: false },
  ).data?.data;
  const key = useRecord(
    '/v1/keys/{key_id}',
    { path: { key_id: url.key_id ?? '' } },
    { enabled: Boolean(url.key_id?.startsWith('key_')) && !noKeys, staleTime: 60_000, retry: false },
  ).data?.data;
  const unclear = useTyped(url, change, gateways, noGateways);
  const filters: Filter[] = [
    {
      name: 'result',
      label: 'Result',
      values: [
        { value: 'charged', label: 'charged, and neither refused nor failed' },
        { value: 'retried', label: 'sent to several targets' },
      ],
      shown: (v) => v,
    },
    { name: 'status', label: 'Status', values: statuses, other: /^[45]\d\d$/, shown: (v) => v },
    {
      name: 'gateway_id',
      label: 'Gateway',
      values: gateways.map((g) => ({ value: g.gateway_id, label: nameOf(g.gateway_id) })),
      other: /^gw_/,
      shown: nameOf,
    },
    { name: 'route_id', label: 'Route', shown: (v) => route?.path ?? v },
    { name: 'key_id', label: 'Key', shown: (v) => key?.name ?? v },
    ...(live
      ? []
      : [
          { name: 'since', label: 'Since', shown: showPoint },
          { name: 'until', label: 'Until', shown: showPoint },
        ]),
  ];
  return (
    <Page
      title={kept?.title ?? 'Refused and failed requests'}
      actions={
        <>
          {!live && (
            <Ranges
              value={url.since || url.until ? '' : '24h'}
              options={['15m', '1h', '24h']}
              onChange={(r) => change({ since: r === '24h' ? undefined : pointInTime(r), until: undefined })}
            />
          )}
          <Button
            icon={live ? 'stop' : 'play'}
            kind={live ? 'plain' : 'primary'}
            onClick={() => change(live ? { live: undefined } : { live: '1', since: undefined, until: undefined })}>
            {live ? 'Stop following' : 'Follow live'}
          </Button>
        </>
      }>
      <p className="-mt-2 text-muted">
        {kept?.what ?? 'What was refused (401, 403, 404, 405, 429) or failed (5xx) in the last 24 hours, each with its reason.'}
      </p>
      <Panel
        flush
        title={
          <FilterBar
            search={false}
            filters={filters}
            placeholder={`Filter by status, gateway, route${live ? ' or key' : ', key or time (15m, 1h)'}`}
          />
        }>
        {unclear ? (
          <Empty icon="search" title="No request matches">
            {unclear}
          </Empty>
        ) : live ? (
          <Live
            key={[account?.account_id, url.result, url.status, url.gateway_id, url.route_id, url.key_id].join(' ')}
            url={url}
            nameOf={nameOf}
          />
        ) : (
          <Past url={url} nameOf={nameOf} onClear={() => change(nothing)} />
        )}
      </Panel>
    </Page>
  );
}

// useTyped makes identifiers of what was typed for a key, by its name or prefix, and for a route, by its path. While
// it cannot, it says why.
function useTyped(
  url: { [P in Names]?: string },
  change: (changes: { [P in Names]?: string }, replace?: boolean) => void,
  gateways: { gateway_id: string }[],
  noGateways: string | null,
): string | null {
  const key = useTypedKey(url.key_id);
  const route = url.route_id && !url.route_id.startsWith('rt_') ? url.route_id : '';
  const gateway = url.gateway_id ?? (gateways.length === 1 ? gateways[0]?.gateway_id : undefined) ?? '';
  const routes = useRecord(
    '/v1/gateways/{gateway_id}/routes',
    { path: { gateway_id: gateway }, query: { q: route, limit: 100 } },
    { enabled: route !== '' && gateway !== '' && !noGateways },
  ).data?.data.data;
  const found = routes?.filter((r) => r.path === route);
  const foundKey = key.id;
  const foundRoute = (found?.length === 1 ? found : routes?.length === 1 ? routes : undefined)?.[0]?.route_id;
  useEffect(() => {
    if (foundKey || foundRoute)
      change({ ...(foundKey && { key_id: foundKey }), ...(foundRoute && { route_id: foundRoute, gateway_id: gateway }) }, true);
  }, [foundKey, foundRoute, gateway, change]);
  if (key.why) return key.why;
  if (route) {
    if (noGateways) return `${noGateways} Use the identifier of the route.`;
    if (!gateway) return 'Choose the gateway of the route first.';
    if (!routes || foundRoute) return 'Looking for the route…';
    return routes.length === 0
      ? `No route of the gateway has “${route}” in its path.`
      : `Several routes match “${route}”: ${routes
          .slice(0, 3)
          .map((r) => `${r.methods.join(', ')} ${r.path} (${r.route_id})`)
          .join('; ')}. Use the identifier of one.`;
  }
  return null;
}

// refsOf returns the keys of the requests.
const refsOf = (lines: Line[]): Ref[] => lines.map((l) => ({ id: 'skipped' in l ? null : l.key_id }));

interface ListProps {
  url: { [P in Names]?: string };
  nameOf: (gateway: string) => string;
}

function Past({ url, nameOf, onClear }: ListProps & { onClear: () => void }) {
  const { since, until, ready } = useSpan();
  const { result, status, gateway_id, route_id, key_id, cursor } = url;
  const filtered = Boolean(result || status || gateway_id || route_id || key_id || since || until);
  const query = useList(
    '/v1/requests',
    { query: { result, status, gateway_id, route_id, key_id, since, until, cursor, limit: 50 } },
    { enabled: ready, refetchInterval: cursor ? false : 10_000 },
  );
  const names = useNames(refsOf(query.data?.data.data ?? []));
  const left = query.data?.data.data.find((r) => Number(r.left_out) > 0);
  return (
    <>
      {left && (
        <p className="flex items-center gap-2 border-b border-line bg-warn-soft px-4 py-2 text-warn">
          <Icon name="warn" />
          There were more than 1,000 such requests in a second, so this list is a sample: {count(left.left_out)} of one second are not in
          it.
        </p>
      )}
      <PagedTable
        label={result ? 'Requests that were charged' : 'Refused and failed requests'}
        query={query}
        columns={requestColumns((id) => (id.startsWith('key_') ? names.nameOf(id) : nameOf(id)))}
        rowKey={lineKey}
        empty={
          filtered ? (
            <Empty icon="search" title="No request matches" action={<Button onClick={onClear}>Clear the filters</Button>}>
              {result ? 'None was charged' : 'None was refused or failed'} in the last 24 hours with these filters.
            </Empty>
          ) : (
            <Empty icon="check" title="Nothing was refused, and nothing failed">
              Requests that are refused, that find no gateway or route (404, 405), or that fail appear here within a second, with the
              reason.
            </Empty>
          )
        }
      />
    </>
  );
}

function Live({ url, nameOf }: ListProps) {
  const { result, status, gateway_id, route_id, key_id } = url;
  const [paused, setPaused] = useState(false);
  const { lines, state, waiting, clear } = useTail({ result, status, gateway_id, route_id, key_id }, paused);
  const names = useNames(refsOf(lines));
  return (
    <>
      <div className="flex min-h-10 flex-wrap items-center gap-2 border-b border-line px-4 py-1.5">
        <span role="status" className="min-w-28">
          {state === 'ended' ? (
            <Status tone="warn">The session has ended, and the live list with it.</Status>
          ) : state === 'cut' ? (
            <Status tone="warn">The live list was cut off. It is connecting again.</Status>
          ) : state === 'connecting' ? (
            <Status tone="plain" icon="clock">
              Connecting
            </Status>
          ) : paused ? (
            <Status tone="info" icon="pause">
              Paused
            </Status>
          ) : (
            <Status tone="ok" icon="play">
              Live
            </Status>
          )}
        </span>
        <span className="text-muted">
          {paused && waiting.kept > 0
            ? `${count(waiting.kept)} waiting${waiting.skipped > 0 ? `, ${count(waiting.skipped)} skipped` : ''}`
            : `${state === 'polling' ? 'Read every 2 s. ' : ''}The newest 500 are kept here.`}
        </span>
        <div className="ml-auto flex gap-2">
          <Button size="sm" onClick={clear} disabled={lines.length === 0}>
            Clear
          </Button>
          <Button size="sm" icon={paused ? 'play' : 'pause'} onClick={() => setPaused(!paused)}>
            {paused ? 'Go on' : 'Pause'}
          </Button>
        </div>
      </div>
      <Table
        label="Live requests"
        columns={requestColumns((id) => (id.startsWith('key_') ? names.nameOf(id) : nameOf(id)))}
        rows={lines}
        rowKey={lineKey}
        empty={
          <Empty icon="request" title="Waiting for the next one">
            Requests that {result ? 'are charged' : 'are refused or fail'} from now on appear here.
          </Empty>
        }
      />
    </>
  );
}
