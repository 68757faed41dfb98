import { Link } from '@tanstack/react-router';
import { useBusiest } from '../../api/busiest';
import type { Schemas } from '../../api/client';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { count } from '../../lib/format';
import { refusals } from '../../lib/traffic';
import { useUrl } from '../../lib/url';
import { buttonClass, Button, Empty, Page, Panel, Status, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';

type Gateway = Schemas['Gateway'];

export default function Gateways() {
  const [{ q, cursor }, change] = useUrl<'q' | 'cursor'>();
  const refused = useRefusal('write', 'gateways');
  const query = useList('/v1/gateways', { query: { q, cursor, limit: 50 } }, { refetchInterval: 30_000 });
  const lastHour = useBusiest({ group_by: 'gateway' });
  const columns: Column<Gateway>[] = [
    {
      title: 'Name',
      className: 'w-full max-w-0 @2xl:w-1/3',
      cell: (g) => (
        <span className="flex items-center gap-2">
          <Link
            to="/gateways/$gatewayId"
            params={{ gatewayId: g.gateway_id }}
            className="row-link link truncate font-medium"
            title={g.name}>
            {g.name}
          </Link>
          {g.default && (
            <Status tone="info" icon="check">
              Default
            </Status>
          )}
        </span>
      ),
    },
    {
      title: 'Hostname',
      className: 'w-1/3 max-w-0 hidden @3xl:table-cell',
      cell: (g) => (
        <code className="block truncate font-mono text-sm" title={g.hostname}>
          {g.hostname}
        </code>
      ),
    },
    {
      title: 'Upstream',
      className: 'w-1/3 max-w-0 hidden @2xl:table-cell',
      cell: (g) => (
        <span className="flex gap-1 text-sm" title={g.upstream_url}>
          <code className="truncate font-mono">{g.upstream_url}</code>
          {g.target_count !== undefined && <span className="shrink-0 text-muted">and {count(Number(g.target_count) - 1)} more</span>}
        </span>
      ),
    },
    { title: 'Requests, 1 h', number: true, cell: (g) => lastHour(g.gateway_id, (r) => Number(r.requests)) },
    {
      title: 'Refused',
      number: true,
      className: 'hidden @lg:table-cell',
      cell: (g) => lastHour(g.gateway_id, (r) => refusals(r as never)),
    },
    { title: 'Errors', number: true, className: 'hidden @lg:table-cell', cell: (g) => lastHour(g.gateway_id, (r) => Number(r.status_5xx)) },
    { title: 'Revision', number: true, className: 'hidden @5xl:table-cell', cell: (g) => g.revision ?? '–' },
    { title: 'Created', number: true, className: 'hidden @5xl:table-cell', cell: (g) => <Time at={g.created_at} /> },
  ];
  const create = refused ? (
    <Button kind="primary" icon="plus" why={refused}>
      Create a gateway
    </Button>
  ) : (
    <Link to="/gateways/new" className={buttonClass('primary')}>
      Create a gateway
    </Link>
  );
  return (
    <Page
      title="Gateways"
      actions={
        <>
          <Link to="/certificates" className={buttonClass()}>
            Certificates
          </Link>
          {create}
        </>
      }>
      <Panel flush title={<FilterBar placeholder="Search gateways" />}>
        <PagedTable
          label="Gateways"
          query={query}
          columns={columns}
          rowKey={(g) => g.gateway_id}
          empty={
            q ? (
              <Empty
                icon="search"
                title="No gateway matches"
                action={<Button onClick={() => change({ q: undefined })}>Clear the search</Button>}>
                The search looks at names, hostnames and upstreams.
              </Empty>
            ) : (
              <Empty icon="gateway" title="No gateways yet" action={create}>
                A gateway stands in front of an HTTP service and lets callers in by key.
              </Empty>
            )
          }
        />
      </Panel>
    </Page>
  );
}
