import { Link, Outlet, useParams, useRouterState } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
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
  const page = useRouterState({ select: (s) => s.location.pathname });
  const ways = useRef<HTMLElement>(null);
  // Where the pages do not fit, the way to the one that is open is in sight.
  useEffect(() => {
    const nav = ways.current;
    const open = nav?.querySelector<HTMLElement>('[aria-current]');
    if (!nav || !open || !page) return;
    const [a, b] = [nav.getBoundingClientRect(), open.getBoundingClientRect()];
    if (b.left < a.left || b.right > a.right) nav.scrollLeft += b.left - a.left - (a.width - b.width) / 2;
  }, [page]);
  if (query.error && !record)
    return (
      <Page title="Gateway">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  return (
    <Page
      wide
      title={
        <span className="flex flex-wrap items-center gap-3">
          {record ? (
            <span className="line-clamp-2 min-w-0 break-words" title={record.name}>
              {record.name}
            </span>
          ) : (
            <Skeleton className="h-6 w-40" />
          )}
          {record?.default && (
            <Status tone="info" icon="check">
              Default
            </Status>
          )}
        </span>
      }>
      <nav ref={ways} aria-label="Pages of the gateway" className="-mt-2 overflow-x-auto border-b border-line">
        <ul className="flex gap-1">
          {tabs.map((t) => (
            <li key={t.to}>
              <Link
                to={t.to}
                params={{ gatewayId }}
                activeOptions={{ exact: 'exact' in t, includeSearch: false }}
                className="flex h-9 items-center border-b-2 border-transparent px-3 whitespace-nowrap text-muted -outline-offset-2 hover:text-text aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-text">
                {t.label}
              </Link>
            </li>
          ))}
        </ul>
      </nav>
      {/* Mounted anew for each gateway: what was typed, previewed or opened for one is never applied to another. */}
      <Outlet key={gatewayId} />
    </Page>
  );
}
