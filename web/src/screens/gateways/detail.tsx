import { Link, Outlet, useParams } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { Failure, Page, Skeleton, Status } from '../../ui/basic';

const tabs = [
  { to: '/gateways/$gatewayId', label: 'Overview', exact: true },
  { to: '/gateways/$gatewayId/routes', label: 'Routes' },
  { to: '/gateways/$gatewayId/push', label: 'Push' },
  { to: '/gateways/$gatewayId/revisions', label: 'Revisions' },
  { to: '/gateways/$gatewayId/repository', label: 'Repository' },
  { to: '/gateways/$gatewayId/settings', label: 'Settings' },
] as const;

// useGateway reads the gateway of the page.
export function useGateway() {
  const { gatewayId } = useParams({ strict: false }) as { gatewayId: string };
  return { gatewayId, query: useRecord('/v1/gateways/{gateway_id}', { path: { gateway_id: gatewayId } }, { staleTime: 10_000 }) };
}

// Gateway is what the pages of a gateway share: its name and the way between them.
export default function Gateway() {
  const { gatewayId, query } = useGateway();
  const record = query.data?.data;
  if (query.error && !record) return <Page title="Gateway"><Failure error={query.error} retry={() => void query.refetch()} /></Page>;
  return (
    <Page wide title={<span className="flex flex-wrap items-center gap-3">{record ? <span className="min-w-0 break-words">{record.name}</span> : <Skeleton className="h-6 w-40" />}{record?.default && <Status tone="info" icon="check">Default</Status>}</span>}>
      <nav aria-label="Pages of the gateway" className="-mt-2 overflow-x-auto border-b border-line">
        <ul className="flex gap-1">
          {tabs.map((t) => (
            <li key={t.to}>
              <Link to={t.to} params={{ gatewayId }} activeOptions={{ exact: 'exact' in t, includeSearch: false }}
                className="flex h-9 items-center border-b-2 border-transparent px-3 whitespace-nowrap text-muted -outline-offset-2 hover:text-text aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-text">{t.label}</Link>
            </li>
          ))}
        </ul>
      </nav>
      <Outlet />
    </Page>
  );
}
