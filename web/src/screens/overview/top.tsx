import { Link } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { useNames } from '../../api/names';
import { count, percent } from '../../lib/format';
import { Empty, Failure, Panel } from '../../ui/basic';
import { RouteName } from '../../ui/routename';
import { Table } from '../../ui/table';

interface Props {
  by: 'route' | 'key' | 'target' | 'subject';
  period: { since?: string; until?: string; gateway_id?: string };
  live: { refetchInterval: number | false; staleTime: number };
}

const titles = { route: 'Top routes', key: 'Top keys', target: 'Top targets', subject: 'Top subjects of tokens' };
const nouns = { route: 'Route', key: 'Key', target: 'Target', subject: 'Subject' };

// Top lists the routes, keys, targets or subjects with the most requests of an interval. Targets are shown only if there are
// several, and subjects if there are any.
export function Top({ by, period, live }: Props) {
  const query = useRecord(
    '/v1/reports/top',
    { query: { ...period, group_by: by, order: 'requests', limit: 8 } },
    { ...live, placeholderData: (old) => old },
  );
  const rows = query.data?.data.data.filter((r) => Number(r.requests) > 0 && (by !== 'target' || r.group !== null));
  const { nameOf } = useNames(by === 'key' ? (rows ?? []).map((r) => ({ id: r.group })) : []);
  if ((by === 'target' && (rows?.length ?? 0) < 2) || (by === 'subject' && !rows?.length)) return null;
  return (
    <Panel
      flush
      className="min-h-[368px]"
      title={titles[by]}
      actions={
        by === 'key' ? (
          <Link to="/keys" className="link">
            All keys
          </Link>
        ) : by === 'route' ? (
          <Link to="/routes" className="link">
            All routes
          </Link>
        ) : null
      }>
      {query.error ? (
        <div className="p-4">
          <Failure error={query.error} />
        </div>
      ) : (
        <Table
          label={titles[by]}
          rows={rows}
          rowKey={(r) => `${r.group ?? ''} ${r.issuer_id ?? ''}`}
          skeletons={8}
          empty={<Empty icon={by === 'target' || by === 'subject' ? 'external' : by} title="No requests in this time" />}
          columns={[
            {
              title: nouns[by],
              className: 'w-full max-w-0', // its width never depends on the names, which come later
              cell: (r) =>
                by === 'target' || by === 'subject' ? (
                  <code className="block truncate font-mono text-sm" title={r.group ?? ''}>
                    {r.group}
                  </code>
                ) : !r.group ? (
                  <Link to="/requests" search={{ status: by === 'route' ? '404' : '401' }} className="row-link text-muted hover:text-text">
                    {by === 'route' ? 'no route' : 'no key'}
                  </Link>
                ) : by === 'key' ? (
                  <Link to="/keys/$keyId" params={{ keyId: r.group }} className="row-link link block wrap-anywhere">
                    {nameOf(r.group)}
                  </Link>
                ) : (
                  <RouteName row={r} />
                ),
            },
            { title: 'Requests', number: true, cell: (r) => count(r.requests) },
            {
              title: 'Refused',
              number: true,
              cell: (r) => percent(Number(r.limited) + Number(r.unauthorized) + Number(r.forbidden), r.requests),
            },
            { title: 'Errors', number: true, className: 'hidden sm:table-cell', cell: (r) => percent(r.status_5xx, r.requests) },
          ]}
        />
      )}
    </Panel>
  );
}
