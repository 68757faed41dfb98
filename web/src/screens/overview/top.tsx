import { Link } from '@tanstack/react-router';
import { useQueries } from '@tanstack/react-query';
import { api } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { count, percent } from '../../lib/format';
import { Empty, Failure, Panel } from '../../ui/basic';
import { RouteName } from '../../ui/routename';
import { Table } from '../../ui/table';

interface Props {
  by: 'route' | 'key';
  period: { since?: string; until?: string; gateway_id?: string };
  live: { refetchInterval: number | false; staleTime: number };
}

// Top lists the routes or keys with the most requests of an interval.
export function Top({ by, period, live }: Props) {
  const query = useRecord(
    '/v1/reports/top',
    { query: { ...period, group_by: by, order: 'requests', limit: 8 } },
    { ...live, placeholderData: (old) => old },
  );
  const rows = query.data?.data.data.filter((r) => Number(r.requests) > 0);
  // The names of so few keys are worth a call each; they are kept.
  const keys = useQueries({
    queries: (by === 'key' ? (rows ?? []) : [])
      .filter((r) => r.group)
      .map((r) => ({
        queryKey: ['/v1/keys/{key_id}', { key_id: r.group }, {}],
        queryFn: () => api.get('/v1/keys/{key_id}', { path: { key_id: r.group ?? '' } }),
        staleTime: 300_000,
        retry: false,
      })),
  });
  const nameOf = (id: string) => keys.find((k) => k.data?.data.key_id === id)?.data?.data.name ?? id;
  return (
    <Panel
      flush
      className="min-h-[368px]"
      title={by === 'route' ? 'Top routes' : 'Top keys'}
      actions={
        by === 'key' ? (
          <Link to="/keys" className="link">
            All keys
          </Link>
        ) : (
          <Link to="/routes" className="link">
            All routes
          </Link>
        )
      }>
      {query.error ? (
        <div className="p-4">
          <Failure error={query.error} />
        </div>
      ) : (
        <Table
          label={by === 'route' ? 'Top routes' : 'Top keys'}
          rows={rows}
          rowKey={(r) => r.group ?? ''}
          skeletons={8}
          empty={<Empty icon={by} title="No requests in this time" />}
          columns={[
            {
              title: by === 'route' ? 'Route' : 'Key',
              className: 'w-full max-w-0', // its width never depends on the names, which come later
              cell: (r) =>
                !r.group ? (
                  <span className="text-muted">{by === 'route' ? 'no route' : 'no key'}</span>
                ) : by === 'key' ? (
                  <Link to="/keys/$keyId" params={{ keyId: r.group }} className="link block truncate" title={nameOf(r.group)}>
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
