import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { count, plural } from '../../lib/format';
import { modeWords, placeWords, sumWords } from '../../lib/validation';
import { Button, Code, Details, Empty, Failure, Panel, Skeleton, Time } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { Table } from '../../ui/table';
import { useGateway } from './detail';

type Row = Schemas['ValidationData'];

// Validation shows what the requests of a gateway do otherwise than its OpenAPI document says, and what of it is not checked.
export default function Validation() {
  const { gatewayId, query: gateway } = useGateway();
  const query = useRecord('/v1/gateways/{gateway_id}/validation', { path: { gateway_id: gatewayId } }, { refetchInterval: 10_000 });
  const [open, setOpen] = useState<Row | null>(null);
  const v = query.data?.data;
  if (query.error && !v) return <Failure error={query.error} retry={() => void query.refetch()} />;
  if (!v || gateway.isPending) return <Skeleton className="h-96 w-full" />;
  return (
    <>
      <Panel title="Requests and the document">
        <p>
          {modeWords[v.mode]} Routes may have a mode of their own; that of the gateway is in its{' '}
          <Link to="/gateways/$gatewayId/settings" params={{ gatewayId }} className="link">
            settings
          </Link>
          .
        </p>
        <p className="mt-2 font-semibold">{sumWords(v)}</p>
        {Number(v.skipped) > 0 && (
          <p className="mt-2 text-muted">
            {plural(v.skipped, 'request')} could not be checked: the operation is unchecked, or too many bodies were held.
          </p>
        )}
      </Panel>
      <Panel title="What requests do otherwise" flush>
        <Table
          label="What requests do otherwise"
          rows={v.data}
          rowKey={(r) => JSON.stringify([r.method, r.path, r.place, r.pointer, r.rule, r.message])}
          empty={
            <Empty icon="check" title="Nothing was counted">
              {v.mode === 'off'
                ? 'Set the mode report to count what enforce would refuse.'
                : 'No request of the last 24 hours did otherwise than the document says.'}
            </Empty>
          }
          columns={[
            {
              title: 'Operation',
              className: 'min-w-32 @4xl:min-w-64',
              cell: (r) => (
                <button type="button" className="row-link link text-left font-mono text-sm break-all" onClick={() => setOpen(r)}>
                  {r.method} {r.path}
                </button>
              ),
            },
            { title: 'Problem', className: 'w-full', cell: (r) => <span className="break-words">{problem(r)}</span> },
            { title: 'Requests', number: true, cell: (r) => count(r.requests) },
            { title: 'Keys', number: true, className: 'hidden @lg:table-cell', cell: (r) => count(r.keys) },
            { title: 'Last', className: 'hidden @2xl:table-cell', cell: (r) => <Time at={r.last[0]?.time} /> },
          ]}
        />
      </Panel>
      {v.unchecked.length > 0 && (
        <Panel title="Unchecked operations" flush>
          <Table
            label="Unchecked operations"
            plain
            rows={v.unchecked}
            rowKey={(u) => `${u.method} ${u.path}`}
            empty={null}
            columns={[
              {
                title: 'Operation',
                className: 'min-w-32 @4xl:min-w-64',
                cell: (u) => (
                  <span className="font-mono text-sm break-all">
                    {u.method} {u.path}
                  </span>
                ),
              },
              { title: 'Why', className: 'w-full', cell: (u) => <span className="break-words">{u.reason}</span> },
            ]}
          />
        </Panel>
      )}
      {open && <Problem row={open} onClose={() => setOpen(null)} />}
    </>
  );
}

const problem = (r: Row) => `${placeWords(r.place)}: ${r.message}`;

// Problem shows where the document says what is not met, and the newest requests.
function Problem({ row, onClose }: { row: Row; onClose: () => void }) {
  return (
    <Dialog title={`${row.method} ${row.path}`} onClose={onClose} wide>
      <Details
        rows={[
          ['Problem', problem(row)],
          ['Rule', <code key="r">{row.rule}</code>],
          ['Requests', `${count(row.requests)} with ${plural(row.keys, 'key')}`],
        ]}
      />
      <h3 className="mt-4 mb-1 font-semibold">In the document</h3>
      <Code text={row.pointer} label="JSON pointer" />
      <h3 className="mt-4 mb-1 font-semibold">The newest requests</h3>
      <Table
        label="The newest requests"
        plain
        rows={row.last.slice(0, shown)}
        rowKey={(l) => JSON.stringify([l, row.last.indexOf(l)])}
        empty={null}
        columns={[
          { title: 'When', cell: (l) => <Time at={l.time} /> },
          {
            title: 'Key',
            className: 'w-full',
            cell: (l) =>
              l.key_id ? (
                <Link to="/keys/$keyId" params={{ keyId: l.key_id }} className="link font-mono text-sm break-all">
                  {l.key_id}
                </Link>
              ) : (
                '–'
              ),
          },
        ]}
      />
      <div className="mt-4 flex justify-end">
        <Button onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}

const shown = 20;
