import { useState } from 'react';
import { url as callUrl } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useList, useRecord } from '../../api/hooks';
import { useNames } from '../../api/names';
import type { Filter } from '../../lib/filter';
import { count, plural } from '../../lib/format';
import { showPoint, useSpan } from '../../lib/span';
import { exact, timeOfDay } from '../../lib/time';
import { useUrl } from '../../lib/url';
import { Button, buttonClass, Empty, Failure, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { Icon } from '../../ui/icon';
import { Segments } from '../../ui/segments';
import { type Column, PagedTable, Table } from '../../ui/table';
import { type Entry, EntryDialog, keyOf, Outcome } from './entry';
import { type Line, useFollow } from './follow';

const names = ['kind', 'outcome', 'key_prefix', 'key_id', 'gateway_id', 'actor', 'since', 'until'] as const;

// Audit shows who did what, and who was refused.
export default function Audit() {
  const [url, change] = useUrl<(typeof names)[number] | 'cursor' | 'follow' | 'all'>();
  const { gateways, nameOf } = useGateways();
  const [open, setOpen] = useState<Entry | null>(null);
  const all = url.all === '1';
  const filter = { ...Object.fromEntries(names.map((n) => [n, url[n]])), notable: all ? undefined : 'true' };
  const { ready } = useSpan();
  const following = url.follow === '1';
  const query = useList('/v1/audit-log', { query: { ...filter, cursor: url.cursor, limit: 50 } }, { enabled: ready && !following });
  const follow = useFollow(ready && following, filter);
  const entries = following ? (follow.lines ?? []).flatMap((l) => ('entry' in l ? [l.entry] : [])) : (query.data?.data.data ?? []);
  const records = useNames(
    entries.flatMap((e) => [{ id: e.target, ...(e.gateway_id && { gateway_id: e.gateway_id }) }, { id: e.gateway_id }, { id: e.key_id }]),
  );
  const filters: Filter[] = [
    {
      name: 'kind',
      label: 'Kind',
      values: [
        { value: 'management', label: 'management' },
        { value: 'authentication', label: 'authentication' },
      ],
    },
    {
      name: 'outcome',
      label: 'Outcome',
      values: ['success', 'key_invalid', 'key_expired', 'scope_insufficient', 'address_not_allowed'].map((v) => ({
        value: v,
        label: v.replaceAll('_', ' '),
      })),
    },
    { name: 'gateway_id', label: 'Gateway', values: gateways.map((g) => ({ value: g.gateway_id, label: g.name })), shown: nameOf },
    { name: 'key_prefix', label: 'Key prefix' },
    { name: 'key_id', label: 'Key' },
    { name: 'actor', label: 'Actor' },
    { name: 'since', label: 'Since', shown: showPoint },
    { name: 'until', label: 'Until', shown: showPoint },
  ];
  const columns: Column<Entry>[] = [
    { title: 'When', cell: (e) => <Time at={e.time} /> },
    { title: 'Outcome', cell: (e) => <Outcome value={e.outcome} listed /> },
    {
      title: 'What',
      className: 'w-full max-w-0',
      cell: (e) => (
        <button
          type="button"
          className="row-link link block max-w-full truncate text-left font-mono text-sm"
          title={`${e.method} ${e.path}`}
          onClick={() => setOpen(e)}>
          {e.action ?? `${e.method} ${e.path}`}
          {Number(e.count) > 1 && ` × ${count(e.count)}`}
        </button>
      ),
    },
    {
      title: 'Target',
      className: 'hidden lg:table-cell',
      cell: (e) => {
        const id = e.target ?? e.gateway_id ?? '';
        return (
          <span className={`block w-44 truncate text-muted ${records.known(id) ? '' : 'font-mono text-sm'}`} title={id}>
            {id ? records.nameOf(id) : '–'}
          </span>
        );
      },
    },
    {
      title: 'Key',
      className: 'hidden sm:table-cell',
      cell: (e) => (
        <span className="block w-36 truncate" title={e.key_prefix ?? ''}>
          {e.key_id && records.known(e.key_id) ? (
            records.nameOf(e.key_id)
          ) : (
            <code className="font-mono text-sm">{e.subject ?? e.key_prefix ?? '–'}</code>
          )}
        </span>
      ),
    },
    { title: 'Client', className: 'hidden xl:table-cell', cell: (e) => <span className="text-muted">{e.client_ip || '–'}</span> },
  ];
  const empty = all ? (
    <Empty icon="audit" title="No records match">
      The audit log has each request that showed a key or should have, and each change.
    </Empty>
  ) : (
    <Empty
      icon="audit"
      title="No changes or refusals match"
      action={<Button onClick={() => change({ all: '1' })}>Show all records</Button>}>
      Requests whose key was accepted are not shown here.
    </Empty>
  );
  const download = (format: 'jsonl' | 'csv') => callUrl('/v1/audit-log', {}, { ...filter, format });
  return (
    <Page
      title="Audit log"
      actions={
        <>
          <Button
            icon={following ? 'pause' : 'play'}
            aria-pressed={following}
            onClick={() => change({ follow: following ? undefined : '1' })}>
            {following ? 'Stop following' : 'Follow'}
          </Button>
          <a href={download('csv')} download="audit-log.csv" className={buttonClass()}>
            Export CSV
          </a>
          <a href={download('jsonl')} download="audit-log.jsonl" className={buttonClass()}>
            Export JSON Lines
          </a>
        </>
      }>
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <Chain />
        <Segments
          label="Records"
          value={all ? 'all' : 'notable'}
          options={[
            { value: 'notable', label: 'Changes and refusals' },
            { value: 'all', label: 'All records' },
          ]}
          onChange={(v) => change({ all: v === 'all' ? '1' : undefined })}
        />
      </div>
      <Panel flush title={<FilterBar search={false} filters={filters} placeholder="Filter the audit log" />}>
        {following ? (
          <>
            {follow.error && (
              <div className="p-4">
                <Failure error={follow.error} />
              </div>
            )}
            <Table label="Audit log" columns={lineColumns(columns)} rows={follow.lines} rowKey={(l) => l.key} empty={empty} />
          </>
        ) : (
          <PagedTable label="Audit log" query={query} columns={columns} rowKey={keyOf} empty={empty} />
        )}
      </Panel>
      {open && <EntryDialog entry={open} onClose={() => setOpen(null)} />}
    </Page>
  );
}

// lineColumns shows the lines of a followed log in the columns of its records.
function lineColumns(columns: Column<Entry>[]): Column<Line>[] {
  return columns.map((c, i) => ({
    ...c,
    cell: (l: Line) =>
      'entry' in l ? (
        c.cell(l.entry)
      ) : i === 2 ? (
        <span className="flex items-center gap-1.5 text-warn">
          <Icon name="warn" />
          More than {l.skipped} entries came at once: earlier ones were skipped
        </span>
      ) : null,
  }));
}

// Chain shows the end of the hash chain that protects the log (contract, section 7), and what it does not protect yet.
function Chain() {
  const head = useRecord('/v1/audit-log/head', {}, { refetchInterval: 60_000 }).data?.data;
  if (!head) return <div className="h-5" />;
  const open = Number(head.unsealed) > 0 && (
    <span>
      {plural(head.unsealed, 'record')} {Number(head.unsealed) === 1 ? 'is' : 'are'} not sealed yet
      {head.sealed_by && (
        <>
          , and will be by{' '}
          <time dateTime={head.sealed_by} title={exact(head.sealed_by)}>
            {timeOfDay(head.sealed_by)}
          </time>
        </>
      )}
      .
    </span>
  );
  if (Number(head.number) === 0)
    return (
      <p className="flex flex-wrap items-center gap-x-2 text-muted">
        <Icon name="clock" />
        <span>Hash chain: no block is sealed yet.</span>
        {open}
      </p>
    );
  return (
    <p className="flex flex-wrap items-center gap-x-2 text-muted">
      <Icon name="check" className="text-ok" />
      Hash chain: block {head.number}
      {head.time && (
        <>
          , sealed <Time at={head.time} />
        </>
      )}
      {head.digest && (
        <code className="max-w-64 truncate font-mono text-sm" title={head.digest}>
          {head.digest}
        </code>
      )}
      {open}
    </p>
  );
}
