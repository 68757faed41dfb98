import { Link } from '@tanstack/react-router';
import type { Schemas } from '../api/client';
import { useRecord } from '../api/hooks';
import { Skeleton } from './basic';

// RouteName shows the methods and path of a route in a report of the greatest. So few are worth a call each.
export function RouteName({ row }: { row: Schemas['TopRow'] }) {
  const path = { gateway_id: row.gateway_id ?? '', route_id: row.group ?? '' };
  const query = useRecord(
    '/v1/gateways/{gateway_id}/routes/{route_id}',
    { path },
    { enabled: Boolean(row.gateway_id), staleTime: 300_000, retry: false },
  );
  const route = query.data?.data;
  if (!row.gateway_id || query.error)
    return (
      <span className="block truncate text-muted" title={row.group ?? ''}>
        {row.group}
      </span>
    );
  if (!route) return <Skeleton className="h-3.5 w-28" />;
  const name = `${route.methods.join(', ')} ${route.path}`;
  return (
    <Link
      to="/gateways/$gatewayId/routes/$routeId"
      params={{ gatewayId: path.gateway_id, routeId: path.route_id }}
      className="row-link link block truncate font-mono text-sm"
      title={name}>
      {name}
    </Link>
  );
}
