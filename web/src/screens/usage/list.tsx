import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { url as callUrl } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useList } from '../../api/hooks';
import { useNames } from '../../api/names';
import { useTypedKey, useTypedOwner } from '../../api/typed';
import type { Filter } from '../../lib/filter';
import { count } from '../../lib/format';
import { showPoint, useSpan } from '../../lib/span';
import { exact } from '../../lib/time';
import { meters, meterWords, paramsOf, periodWords, toView, unitsOf, type UsageRecord, type View, viewOf } from '../../lib/usage';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel } from '../../ui/basic';
import { type Download, Downloads } from '../../ui/downloads';
import { FilterBar } from '../../ui/filter';
import { Segments } from '../../ui/segments';
import { type Column, PagedTable } from '../../ui/table';
import { UsageDialog, UsageState } from './record';

const names = ['owner_id', 'key_id', 'gateway_id', 'meter', 'since', 'until'] as const;
type Names = (typeof names)[number];
const cleared = Object.fromEntries(names.map((n) => [n, undefined])) as { [P in Names]?: undefined };

const about: Record<View, string> = {
  final: 'What each key has used on each route in each hour, in the order in which the records became final. They never change.',
  open: 'What each key has used so far in the hours that are not final yet. The figures grow.',
  days: 'Final records of days (UTC). Hours older than 35 days become days, which are kept for 400 days.',
};

// UsageRecords shows what was used, as it is billed.
export default function UsageRecords() {
  const [url, change] = useUrl<Names | 'state' | 'interval' | 'cursor'>();
  const { gateways, nameOf, loading } = useGateways();
  const [shown, setShown] = useState<UsageRecord | null>(null);
  const { ready } = useSpan();
  const view = viewOf(url);
  const show = (to: View) => change(toView(view, to));
  const unclear = useTyped(url, change);
  const asked = { ...Object.fromEntries(names.map((n) => [n, url[n]])), ...paramsOf(view) };
  const query = useList(
    '/v1/usage-records',
    { query: { ...asked, cursor: url.cursor, limit: 50 } },
    { enabled: ready && !unclear, refetchInterval: url.cursor ? false : view === 'open' ? 10_000 : 30_000 },
  );
  const rows = query.data?.data.data ?? [];
  const records = useNames([{ id: url.owner_id }, { id: url.key_id }, ...rows.map((r) => ({ id: r.route_id, gateway_id: r.gateway_id }))]);
  const filters: Filter[] = [
    { name: 'owner_id', label: 'Owner', shown: records.nameOf },
    { name: 'key_id', label: 'Key', shown: records.nameOf },
    {
      name: 'gateway_id',
      label: 'Gateway',
      values: gateways.map((g) => ({ value: g.gateway_id, label: nameOf(g.gateway_id) })),
      other: /^gw_/,
      shown: nameOf,
    },
    {
      name: 'meter',
      label: 'Meter',
      values: Object.entries(meters).map(([value, label]) => ({ value, label })),
      other: /^\w+$/,
      shown: meterWords,
    },
    { name: 'since', label: 'Since', shown: showPoint },
    { name: 'until', label: 'Until', shown: showPoint },
  ];
  return (
    <Page
      title="Usage records"
      actions={
        <>
          <Segments
            label="Records"
            value={view}
            options={[
              { value: 'final', label: 'Final hours' },
              { value: 'open', label: 'Open hours' },
              { value: 'days', label: 'Days' },
            ]}
            onChange={show}
          />
          <Downloads label="Export" files={files(asked)} why={unclear} />
        </>
      }>
      <p className="-mt-2 text-muted">{about[view]}</p>
      <Panel
        flush
        title={<FilterBar search={false} filters={filters} placeholder="Filter by owner, key, gateway, meter or time (24h, 7d)" />}>
        {unclear ? (
          <Empty icon="search" title="No usage record matches">
            {unclear}
          </Empty>
        ) : (
          <PagedTable
            label="Usage records"
            query={query}
            ready={!loading} // the names of gateways stand before those of routes
            columns={columns(view, nameOf, records.nameOf, setShown)}
            rowKey={(r) => r.usage_id}
            empty={
              <None
                view={view}
                filtered={names.some((n) => url[n])}
                later={url.cursor !== undefined}
                onShow={show}
                onClear={() => change(cleared)}
              />
            }
          />
        )}
      </Panel>
      {shown && <UsageDialog record={shown} onClose={() => setShown(null)} />}
    </Page>
  );
}

// useTyped makes identifiers of what was typed for an owner or a key. While it cannot, it says why.
function useTyped(url: { [P in Names]?: string }, change: (changes: { [P in Names]?: string }, replace?: boolean) => void): string | null {
  const owner = useTypedOwner(url.owner_id);
  const key = useTypedKey(url.key_id);
  useEffect(() => {
    if (owner.id || key.id) change({ ...(owner.id && { owner_id: owner.id }), ...(key.id && { key_id: key.id }) }, true);
  }, [owner.id, key.id, change]);
  return owner.why ?? key.why;
}

// files are the exports of the records that are asked for.
function files(asked: Record<string, string | undefined>): Download[] {
  const href = (format: string) => callUrl('/v1/usage-records', {}, { ...asked, format });
  return [
    { label: 'CSV', note: 'A row for each record', href: href('csv'), file: 'usage-records.csv' },
    { label: 'JSON Lines', note: 'A JSON object for each record', href: href('jsonl'), file: 'usage-records.jsonl' },
    { label: 'CloudEvents', note: 'An event for each record, in JSON', href: href('cloudevents'), file: 'usage-records.cloudevents.jsonl' },
  ];
}

function columns(
  view: View,
  gatewayName: (id: string) => string,
  routeName: (id: string) => string,
  onOpen: (r: UsageRecord) => void,
): Column<UsageRecord>[] {
  const whose = (r: UsageRecord) => (
    <>
      {r.owner !== null && (
        <>
          <bdi>{r.owner}</bdi> ·{' '}
        </>
      )}
      <span className="font-mono text-sm">{r.key_prefix}</span>
    </>
  );
  return [
    {
      title: view === 'days' ? 'Day' : 'Period',
      className: 'w-px @4xl:whitespace-nowrap', // where it is narrow, the hour stands below the date
      cell: (r) => (
        <button
          type="button"
          className="row-link link text-left tabular-nums"
          title={`${exact(r.period_start)} to ${exact(r.period_end)}`}
          onClick={() => onOpen(r)}>
          <Period of={r} />
          {Number(r.sequence) > 1 && (
            <span className="ml-1.5 text-sm text-muted">
              <span className="sr-only">sequence </span>#{count(r.sequence)}
            </span>
          )}
        </button>
      ),
    },
    {
      title: 'Owner',
      className: 'w-28 max-w-28 min-w-28 hidden @4xl:table-cell @5xl:w-44 @5xl:max-w-44 @5xl:min-w-44',
      cell: (r) =>
        r.owner_id ? (
          <Link to="/owners/$ownerId" params={{ ownerId: r.owner_id }} className="link wrap-anywhere">
            <bdi>{r.owner ?? r.owner_id}</bdi>
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    {
      title: 'Key',
      className: 'hidden @4xl:table-cell',
      cell: (r) => (
        <Link to="/keys/$keyId" params={{ keyId: r.key_id }} className="link font-mono text-sm whitespace-nowrap">
          {r.key_prefix}
        </Link>
      ),
    },
    {
      title: 'Route',
      className: 'w-full max-w-0',
      cell: (r) => {
        const route = r.route_id ? routeName(r.route_id) : 'route not known';
        return (
          <>
            <span className="block truncate" title={`${gatewayName(r.gateway_id)}\n${route}`}>
              <span className={r.route_id ? 'hidden @xl:inline' : ''}>{gatewayName(r.gateway_id)} </span>
              <span className={r.route_id ? 'font-mono text-sm' : 'text-muted'}>{route}</span>
            </span>
            <span className="block wrap-anywhere text-muted @4xl:hidden">{whose(r)}</span>
          </>
        );
      },
    },
    {
      title: 'Plan',
      className: 'w-20 max-w-20 min-w-20 hidden @6xl:table-cell',
      cell: (r) => (
        <span className="block truncate" title={r.plan ?? undefined}>
          {r.plan ?? <span className="text-muted">–</span>}
        </span>
      ),
    },
    { title: 'Meter', className: 'whitespace-nowrap hidden @xl:table-cell', cell: (r) => meterWords(r.meter) },
    {
      title: 'Units',
      number: true,
      cell: (r) => (
        <span title={`${count(r.units)} ${r.meter}`}>
          {unitsOf(r.meter, r.units)}
          <span className="block text-sm text-muted @xl:hidden">{meterWords(r.meter)}</span>
        </span>
      ),
    },
    { title: 'Requests', number: true, className: 'hidden @5xl:table-cell', cell: (r) => count(r.requests) },
    { title: 'State', className: 'hidden @7xl:table-cell', cell: (r) => <UsageState record={r} /> },
  ];
}

// Period is a period that is broken between the date and the hour alone.
function Period({ of }: { of: UsageRecord }) {
  const [date, hour] = periodWords(of).split(', ');
  return (
    <>
      <span className="whitespace-nowrap">{hour ? `${date},` : date}</span>
      {hour && (
        <>
          {' '}
          <span className="whitespace-nowrap">{hour}</span>
        </>
      )}
    </>
  );
}

// None says when there will be records, and shows those that there may be.
function None({
  view,
  filtered,
  later,
  onShow,
  onClear,
}: {
  view: View;
  filtered: boolean;
  later: boolean; // a page behind the first
  onShow: (v: View) => void;
  onClear: () => void;
}) {
  const clear = filtered && <Button onClick={onClear}>Clear the filters</Button>;
  if (later)
    return (
      <Empty icon="usage" title="No more usage records">
        This page is behind the last record.
      </Empty>
    );
  if (view === 'open')
    return (
      <Empty
        icon="usage"
        title={filtered ? 'No open usage record matches' : 'No usage record is open'}
        action={
          <>
            <Button onClick={() => onShow('final')}>Show final hours</Button>
            {clear}
          </>
        }>
        Requests that were sent to an upstream appear here within seconds. Those of hours that have ended are in the final records.
      </Empty>
    );
  if (view === 'days')
    return (
      <Empty
        icon="usage"
        title={filtered ? 'No usage record of a day matches' : 'No usage records of days yet'}
        action={
          <>
            <Button onClick={() => onShow('final')}>Show final hours</Button>
            {clear}
          </>
        }>
        Hours become days after 35 days. Until then, their records are in the final hours.
      </Empty>
    );
  return (
    <Empty
      icon="usage"
      title={filtered ? 'No final usage record matches' : 'No usage record is final yet'}
      action={
        <>
          <Button onClick={() => onShow('open')}>Show open hours</Button>
          {clear}
        </>
      }>
      The records of an hour become final seconds after the hour has ended. Until then they are open, and their figures grow.
    </Empty>
  );
}
