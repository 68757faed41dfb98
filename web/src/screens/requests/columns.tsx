import { Link } from '@tanstack/react-router';
import { milliseconds, plural } from '../../lib/format';
import { CopyButton, Status, Time, type Tone } from '../../ui/basic';
import type { IconName } from '../../ui/icon';
import type { Column } from '../../ui/table';
import { explain, hasPassed, type LoggedRequest, short } from './explain';

// What a status means here, by icon and word.
const words: Record<number, [Tone, IconName, string]> = {
  401: ['warn', 'key', 'Key'],
  403: ['warn', 'stop', 'Scope'],
  404: ['warn', 'route', 'No route'],
  405: ['warn', 'route', 'Method'],
  429: ['warn', 'clock', 'Limit'],
};

// What a code says that its status does not.
const codes: Record<string, [Tone, IconName, string]> = { owner_suspended: ['warn', 'pause', 'Owner'] };

export function RequestStatus({ record }: { record: LoggedRequest }) {
  if (hasPassed(record)) return <Passed record={record} />;
  const [tone, icon, word] = (record.decision.upstream_status === null && (codes[record.decision.code] ?? words[record.status])) || [
    'bad' as Tone,
    'cross' as IconName,
    record.decision.check === 'internal' ? 'Keygate' : 'Upstream',
  ];
  return (
    <Status tone={tone} icon={icon}>
      {record.status} <span className="@max-xl:sr-only">{word}</span>
    </Status>
  );
}

// Passed is the status of a request that is in the log for its cost or its attempts.
function Passed({ record: { status, decision } }: { record: LoggedRequest }) {
  if (decision.code === 'abandoned') return <Status tone="plain">Client gone</Status>;
  return <Status tone={status < 400 ? 'ok' : 'plain'}>{status}</Status>;
}

// A Line is a request, or a number of requests that the live tail had to leave out.
export type Line = LoggedRequest | { skipped: number; id: number };

// The width of a column with names, which are read after the rows: nothing moves when they arrive.
const nameWidth = 'w-32 max-w-32 min-w-32';

export const lineKey = (l: Line): string => ('skipped' in l ? `skipped-${l.id}` : l.request_id);

// requestColumns returns the columns of a list of requests. nameOf gives the names of gateways and keys.
export function requestColumns(nameOf: (id: string) => string): Column<Line>[] {
  const of = (cell: (r: LoggedRequest) => React.ReactNode) => (l: Line) => ('skipped' in l ? null : cell(l));
  return [
    { title: 'Time', cell: of((r) => <Time at={r.time} />) },
    { title: 'Status', cell: of((r) => <RequestStatus record={r} />) },
    {
      title: 'Request',
      className: 'w-full max-w-0 @4xl:w-[30%]',
      cell: (r) =>
        'skipped' in r ? (
          <span className="text-muted italic">
            {r.skipped > 0 ? `${plural(r.skipped, 'request')} skipped` : 'Further requests skipped'}
          </span>
        ) : (
          <Link
            to="/requests/$requestId"
            params={{ requestId: r.request_id }}
            className="row-link link block truncate font-mono text-sm"
            title={`${r.method} ${r.path}`}>
            <span className="text-muted">{r.method}</span> <bdi>{r.path}</bdi>
            <span className="block truncate font-sans text-muted @4xl:hidden">{short(r)}</span>
          </Link>
        ),
    },
    {
      title: 'Why',
      className: 'w-[70%] max-w-0 hidden @4xl:table-cell',
      cell: of((r) => (
        <span className="block truncate" title={explain(r)}>
          {short(r)}
        </span>
      )),
    },
    {
      title: 'Key',
      className: `${nameWidth} hidden @2xl:table-cell`,
      cell: of((r) =>
        r.key_id ? (
          <Link
            to="/keys/$keyId"
            params={{ keyId: r.key_id }}
            className="link block truncate"
            title={[nameOf(r.key_id), r.key_prefix].join('\n')}>
            <bdi>{nameOf(r.key_id) === r.key_id ? r.key_prefix : nameOf(r.key_id)}</bdi>
          </Link>
        ) : (
          <span className="font-mono text-sm text-muted">{r.key_prefix ?? '–'}</span>
        ),
      ),
    },
    {
      title: 'Gateway',
      className: `${nameWidth} hidden @7xl:table-cell`,
      cell: of((r) =>
        r.gateway_id ? (
          <Link to="/gateways/$gatewayId" params={{ gatewayId: r.gateway_id }} className="link block truncate" title={nameOf(r.gateway_id)}>
            {nameOf(r.gateway_id)}
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
      ),
    },
    { title: 'Duration', number: true, className: 'hidden @7xl:table-cell', cell: of((r) => milliseconds(Number(r.duration_ms))) },
    {
      title: <span className="sr-only">Copy</span>,
      className: 'w-8 hidden @lg:table-cell',
      cell: of((r) => (
        <CopyButton text={() => explain(r, { gateway: r.gateway_id ? nameOf(r.gateway_id) : undefined })} label="Copy the explanation" />
      )),
    },
  ];
}
