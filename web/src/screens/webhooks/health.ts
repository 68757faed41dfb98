import { serverNow } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Delivery } from './state';

const day = 86_400_000;

export interface Health {
  failed: number; // failed deliveries of the last 24 hours
  more: boolean; // whether there are more of them than were counted
  last?: Delivery; // newest delivery with an attempt, if it is among the newest 100 of the account
}

// State of what is known: it is loaded, or the scope of the session's key does not allow to read it.
export interface Known {
  loaded: boolean;
  refused: string | null;
}

// useHealth reads the health of all endpoints with two calls, however many there are.
export function useHealth(): Known & { of: (webhook: string) => Health } {
  const refused = useRefusal('read', 'webhook-deliveries');
  // A whole minute, so that the call is the same for a minute.
  const since = new Date(Math.floor((serverNow() - day) / 60_000) * 60_000).toISOString();
  const failed = useRecord('/v1/webhook-deliveries', { query: { state: 'failed', since, limit: 100 } }, { enabled: !refused, refetchInterval: 15_000 }).data?.data;
  const newest = useRecord('/v1/webhook-deliveries', { query: { limit: 100 } }, { enabled: !refused, refetchInterval: 15_000 }).data?.data;
  return {
    loaded: Boolean(failed && newest),
    refused,
    of: (id) => ({
      failed: failed?.data.filter((d) => d.webhook_id === id).length ?? 0,
      more: Boolean(failed?.next_cursor),
      last: newest?.data.find((d) => d.webhook_id === id && d.attempts.length > 0),
    }),
  };
}

// useEndpointHealth reads the health of one endpoint.
export function useEndpointHealth(webhook_id: string): Known & { health: Health } {
  const refused = useRefusal('read', 'webhook-deliveries');
  const since = new Date(Math.floor((serverNow() - day) / 60_000) * 60_000).toISOString();
  const failed = useRecord('/v1/webhook-deliveries', { query: { webhook_id, state: 'failed', since, limit: 100 } }, { enabled: !refused, refetchInterval: 15_000 }).data?.data;
  const newest = useRecord('/v1/webhook-deliveries', { query: { webhook_id, limit: 10 } }, { enabled: !refused, refetchInterval: 5_000 }).data?.data;
  return {
    loaded: Boolean(failed && newest),
    refused,
    health: { failed: failed?.data.length ?? 0, more: Boolean(failed?.next_cursor), last: newest?.data.find((d) => d.attempts.length > 0) },
  };
}
