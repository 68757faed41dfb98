import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Upstream } from '../../api/upstreams';
import { balanceWords, maxUpstreams, targetsWords } from '../../lib/upstream';
import { useUrl } from '../../lib/url';
import { Button, Empty, Panel } from '../../ui/basic';
import { type Column, PagedTable } from '../../ui/table';
import { InService } from './state';

// Upstreams lists the upstreams of a gateway.
export default function Upstreams() {
  const { gatewayId } = useParams({ from: '/gateways/$gatewayId/upstreams' });
  const [{ cursor }] = useUrl<'cursor'>();
  const navigate = useNavigate();
  const refused = useRefusal('write', `gateways/${gatewayId}/upstreams`);
  const query = useList(
    '/v1/gateways/{gateway_id}/upstreams',
    { path: { gateway_id: gatewayId }, query: { cursor, limit: 100 } },
    { refetchInterval: 30_000 },
  );
  const most = (query.data?.data.data.length ?? 0) >= maxUpstreams;
  const columns: Column<Upstream>[] = [
    {
      title: 'Name',
      className: 'max-w-32 @lg:max-w-40',
      cell: (u) => (
        <Link
          to="/gateways/$gatewayId/upstreams/$upstream"
          params={{ gatewayId, upstream: u.name }}
          className="row-link link block truncate font-mono text-sm"
          title={u.name}>
          {u.name}
        </Link>
      ),
    },
    { title: 'Targets', number: true, className: 'hidden @md:table-cell', cell: (u) => u.targets.length },
    {
      title: 'Addresses',
      className: 'hidden @lg:table-cell w-full max-w-0',
      cell: (u) => (
        <span className="block truncate font-mono text-sm" title={targetsWords(u.targets)}>
          {targetsWords(u.targets)}
        </span>
      ),
    },
    { title: 'State', cell: (u) => <InService gatewayId={gatewayId} upstream={u} /> },
    {
      title: 'Balance',
      className: 'hidden @4xl:table-cell',
      cell: (u) => <span className="whitespace-nowrap text-muted">{balanceWords(u)}</span>,
    },
  ];
  return (
    <Panel
      flush
      title="Upstreams"
      actions={
        <Button
          icon="plus"
          why={refused ?? (most ? `It has ${maxUpstreams} upstreams, which is the most.` : null)}
          onClick={() => void navigate({ to: '/gateways/$gatewayId/new-upstream', params: { gatewayId } })}>
          Add an upstream
        </Button>
      }>
      <PagedTable
        label="Upstreams"
        query={query}
        columns={columns}
        rowKey={(u) => u.name}
        empty={<Empty icon="external" title="No upstreams" />}
      />
    </Panel>
  );
}
