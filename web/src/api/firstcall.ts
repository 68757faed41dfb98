import { type Call, callOf, firstCall } from '../lib/route';
import { useRecord } from './hooks';
import { refusal, useRefusal } from './session';

// useFirstCall suggests a call of a gateway. none says that the gateway has no routes, so that there is no such call.
// With the scope of a key, the call is one that the scope allows.
export function useFirstCall(gatewayId: string | undefined, scope = 'read'): { call: Call | undefined; none: boolean; pending: boolean } {
  const refused = useRefusal('read', `gateways/${gatewayId ?? ''}/routes`);
  const enabled = gatewayId !== undefined && !refused;
  const path = { gateway_id: gatewayId ?? '' };
  const get = useRecord('/v1/gateways/{gateway_id}/routes', { path, query: { method: 'GET', limit: 100 } }, { enabled, staleTime: 30_000 });
  const any = useRecord('/v1/gateways/{gateway_id}/routes', { path, query: { limit: 1 } }, { enabled, staleTime: 30_000 });
  const [one] = any.data?.data.data ?? [];
  const resource = /^\w+:\/?(.+)$/.exec(scope.split(' ', 1)[0] ?? '')?.[1];
  const covers = (called: string) => refusal(scope, 'read', called.slice(1)) === null;
  return {
    call: firstCall(get.data?.data.data ?? [], covers) ?? (resource ? { method: 'GET', path: `/${resource}` } : one && callOf(one)),
    none: any.data !== undefined && !one,
    pending: enabled && (get.isPending || any.isPending),
  };
}
