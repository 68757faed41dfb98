import type { Schemas } from './client';
import { useList } from './hooks';
import { useRefusal } from './session';

export type Upstream = Schemas['Upstream'];
export type Target = Schemas['Target'];

// useUpstreams reads the upstreams of a gateway, of which there are at most 64, the one with the name default first.
export function useUpstreams(gatewayId: string) {
  const refused = useRefusal('read', `gateways/${gatewayId}/upstreams`);
  return useList(
    '/v1/gateways/{gateway_id}/upstreams',
    { path: { gateway_id: gatewayId }, query: { limit: 100 } },
    { refetchInterval: 30_000, enabled: !refused },
  );
}
