import { hasEnded } from '../lib/canary';
import { useList, useRecord } from './hooks';
import { useRefusal } from './session';

const every = 5_000; // the server looks at canaries as often

// useCanary reads a canary, again and again until it has ended.
export function useCanary(gatewayId: string, canaryId: string) {
  return useRecord(
    '/v1/gateways/{gateway_id}/canaries/{canary_id}',
    { path: { gateway_id: gatewayId, canary_id: canaryId } },
    { refetchInterval: (q) => (q.state.data && hasEnded(q.state.data.data) ? false : every) },
  );
}

// usePresentCanary reads the canary of a gateway that has not ended, of which there is at most one: the newest.
export function usePresentCanary(gatewayId: string) {
  const refused = useRefusal('read', `gateways/${gatewayId}/canaries`);
  const query = useList(
    '/v1/gateways/{gateway_id}/canaries',
    { path: { gateway_id: gatewayId }, query: { limit: 1 } },
    { refetchInterval: 10_000, enabled: !refused },
  );
  const newest = query.data?.data.data[0];
  return { canary: newest && !hasEnded(newest) ? newest : undefined, pending: query.isLoading };
}
