import { serverNow } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Delivery } from './state';

const day = 86_400_000;

export interface Health {
  failed: number; // failed deliveries of the last 24 hours
  more: boolean; // whether there are more of them than were counted
  counted: boolean; // whether those of this endpoint were counted, not only those among the account's newest 100
  last?: Delivery; // newest delivery with an attempt, if it is among the newest 100 of the account
}

// dayAgo is 24 hours ago, to the minute, so that the calls are the same for a minute.
export const dayAgo = (): string => new Date(Math.floor((serverNow() - day) / 60_000) * 60_000).toISOString();

// latest returns the delivery that was attempted last.
export function latest(deliveries: Delivery[] = []): Delivery | undefined {
  const at = (d: Delivery) => Date.parse(d.attempts.at(-1)?.started_at ?? '') || 0;
  return deliveries.filter((d) => d.attempts.length > 0).toSorted((a, b) => at(b) - at(a))[0];
}

// State of what is known: it is loaded, or the scope of the session's key does not allow to read it.
export interface Known {
  loaded: boolean;
  refused: string | null;
}

// useHealth reads the health of all endpoints with two calls, however many there are.
export function useHealth(): Known & { of: (webhook: string) => Health } {
  const refused = useRefusal('read', 'webhook-deliveries');
  const since = dayAgo();
  const failed = useRecord(
    '/v1/webhook-deliveries',
    { query: { state: 'failed', since, limit: 100 } },
    { enabled: !refused, refetchInterval: 15_000 },
  ).data?.data;
  const newest = useRecord('/v1/webhook-deliveries', { query: { limit: 100 } }, { enabled: !refused, refetchInterval: 15_000 }).data?.data;
  return {
    loaded: Boolean(failed && newest),
    refused,
    of: (id) => ({
      failed: failed?.data.filter((d) => d.webhook_id === id).length ?? 0,
      more: false,
      counted: !failed?.next_cursor,
      last: latest(newest?.data.filter((d) => d.webhook_id === id)),
    }),
  };
}

// useEndpointHealth reads the health of one endpoint.
export function useEndpointHealth(webhook_id: string): Known & { health: Health } {
  const refused = useRefusal('read', 'webhook-deliveries');
  const since = dayAgo();
  const failed = useRecord(
    '/v1/webhook-deliveries',
    { query: { webhook_id, state: 'failed', since, limit: 100 } },
    { enabled: !refused, refetchInterval: 15_000 },
  ).data?.data;
  const newest = useRecord('/v1/webhook-deliveries', { query: { webhook_id, limit: 10 } }, { enabled: !refused, refetchInterval: 5_000 })
    .data?.data;
  return {
    loaded: Boolean(failed && newest),
    refused,
    health: { failed: failed?.data.length ?? 0, more: Boolean(failed?.next_cursor), counted: true, last: latest(newest?.data) },
  };
}
