import { Link } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { useNames } from '../../api/names';
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
  const { nameOf } = useNames(by === 'key' ? (rows ?? []).map((r) => ({ id: r.group })) : []);
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
                  <Link to="/requests" search={{ status: by === 'route' ? '404' : '401' }} className="row-link text-muted hover:text-text">
                    {by === 'route' ? 'no route' : 'no key'}
                  </Link>
                ) : by === 'key' ? (
                  <Link to="/keys/$keyId" params={{ keyId: r.group }} className="row-link link block truncate" title={nameOf(r.group)}>
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
