import { Outlet, useParams, useRouterState } from '@tanstack/react-router';
import { useRecord, useWarnings } from '../../api/hooks';
import { useUpstreams } from '../../api/upstreams';
import { isPlain } from '../../lib/upstream';
import { Failure, Page, Skeleton, Status, Warnings } from '../../ui/basic';
import { MaintenanceBanner } from './maintenance';
import { Tabs } from '../../ui/tabs';

const tabs = [
  { to: '/gateways/$gatewayId', label: 'Overview' },
  { to: '/gateways/$gatewayId/routes', label: 'Routes', below: true },
  { to: '/gateways/$gatewayId/push', label: 'Push' },
  { to: '/gateways/$gatewayId/revisions', label: 'Revisions' },
  { to: '/gateways/$gatewayId/repository', label: 'Repository' },
  { to: '/gateways/$gatewayId/settings', label: 'Settings' },
];
const validationTab = { to: '/gateways/$gatewayId/validation', label: 'Validation' };
const upstreamsTab = { to: '/gateways/$gatewayId/upstreams', label: 'Upstreams', below: true };
const canariesTab = { to: '/gateways/$gatewayId/canaries', label: 'Canaries', below: true };

// useGateway reads the gateway of the page.
export function useGateway() {
  const { gatewayId } = useParams({ strict: false }) as { gatewayId: string };
  return { gatewayId, query: useRecord('/v1/gateways/{gateway_id}', { path: { gateway_id: gatewayId } }, { staleTime: 10_000 }) };
}

// Gateway is what the pages of a gateway share: its name and the way between them.
export default function Gateway() {
  const { gatewayId, query } = useGateway();
  const record = query.data?.data;
  const warnings = useWarnings(gatewayId);
  const upstreams = useUpstreams(gatewayId).data?.data.data;
  const onUpstreams = useRouterState({ select: (s) => /\/(upstreams|new-upstream)(\/|$)/.test(s.location.pathname) });
  const onValidation = useRouterState({ select: (s) => s.location.pathname.endsWith('/validation') });
  const onCanaries = useRouterState({ select: (s) => /\/canaries(\/|$)/.test(s.location.pathname) });
  // The last ones: what appears later moves nothing.
  const shown = [...tabs];
  if (onValidation || (record && record.validate !== 'off')) shown.push(validationTab);
  if (onUpstreams || onCanaries || (upstreams && !isPlain(upstreams))) shown.push(upstreamsTab);
  if (onCanaries || (upstreams && upstreams.length > 1)) shown.push(canariesTab);
  if (query.error && !record)
    return (
      <Page title="Gateway">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  return (
    <Page
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
      <Tabs label="Pages of the gateway" tabs={shown} params={{ gatewayId }} />
      <Warnings texts={warnings} />
      {record?.maintenance && <MaintenanceBanner gatewayId={gatewayId} maintenance={record.maintenance} />}
      {/* Mounted anew for each gateway: what was typed, previewed or opened for one is never applied to another. */}
      <Outlet key={gatewayId} />
    </Page>
  );
}
