import type { Schemas } from './client';
import { useList, useRecord } from './hooks';
import { useRefusal } from './session';

export type Upstream = Schemas['Upstream'];
export type Target = Schemas['Target'];
export type TargetStatus = Schemas['TargetStatus'];

// useUpstream reads an upstream with the state of its targets, which nodes report every two seconds, again and again.
export function useUpstream(gatewayId: string, name: string, every = 2_000) {
  const refused = useRefusal('read', `gateways/${gatewayId}/upstreams/${name}`);
  return useRecord(
    '/v1/gateways/{gateway_id}/upstreams/{upstream}',
    { path: { gateway_id: gatewayId, upstream: name } },
    { refetchInterval: every, enabled: !refused },
  );
}

// useUpstreams reads the upstreams of a gateway, of which there are at most 64, the one with the name default first.
export function useUpstreams(gatewayId: string) {
  const refused = useRefusal('read', `gateways/${gatewayId}/upstreams`);
  return useList(
    '/v1/gateways/{gateway_id}/upstreams',
    { path: { gateway_id: gatewayId }, query: { limit: 100 } },
    { refetchInterval: 30_000, enabled: !refused },
  );
}
