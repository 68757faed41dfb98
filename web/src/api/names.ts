import { useQueries } from '@tanstack/react-query';
import { type Named, tellApart } from '../lib/names';
import { host } from '../lib/url';
import { type Answer, api, type CallOptions, type GetPath, type Schemas } from './client';
import { refusal, useAccount } from './session';

type Fields = Record<string, unknown>;

interface Kind {
  path: GetPath; // reads one record
  of: (id: string, gatewayId?: string) => Record<string, string> | null; // its parameters, null if they are not known
  part: string; // what a scope must allow to read it
  foreign?: boolean; // its name was chosen by a caller of a gateway, and stands in no title
  named: (record: Fields) => Pick<Named, 'name' | 'mark'>;
}

const text = (value: unknown) => (typeof value === 'string' ? value : '');
const methods = (value: unknown) => (Array.isArray(value) ? value.join(', ') : '');

// The kinds of records that have a name, by the prefix of their identifiers.
const kinds: Record<string, Kind> = {
  gw: {
    path: '/v1/gateways/{gateway_id}',
    of: (id) => ({ gateway_id: id }),
    part: 'gateways',
    named: (r) => ({ name: text(r.name), mark: text(r.hostname) }),
  },
  rt: {
    path: '/v1/gateways/{gateway_id}/routes/{route_id}',
    of: (id, gatewayId) => (gatewayId ? { gateway_id: gatewayId, route_id: id } : null),
    part: 'gateways',
    named: (r) => ({ name: `${methods(r.methods)} ${text(r.path)}`, mark: text(r.route_id).slice(-6) }),
  },
  can: {
    path: '/v1/gateways/{gateway_id}/canaries/{canary_id}',
    of: (id, gatewayId) => (gatewayId ? { gateway_id: gatewayId, canary_id: id } : null),
    part: 'gateways',
    named: (r) => ({ name: `Canary of ${text(r.upstream)}`, mark: text(r.canary_id).slice(-6) }),
  },
  key: {
    path: '/v1/keys/{key_id}',
    of: (id) => ({ key_id: id }),
    part: 'keys',
    named: (r) => ({ name: text(r.name), mark: text(r.key_prefix) }),
  },
  own: {
    path: '/v1/owners/{owner_id}',
    of: (id) => ({ owner_id: id }),
    part: 'owners',
    named: (r) => ({ name: text(r.name) || text(r.external_id), mark: text(r.external_id) }),
  },
  plan: {
    path: '/v1/plans/{plan_id}',
    of: (id) => ({ plan_id: id }),
    part: 'plans',
    named: (r) => ({ name: text(r.name), mark: text(r.plan_id).slice(-6) }),
  },
  iss: {
    path: '/v1/issuers/{issuer_id}',
    of: (id) => ({ issuer_id: id }),
    part: 'issuers',
    named: (r) => ({ name: text(r.name), mark: text(r.issuer_id).slice(-6) }),
  },
  usr: {
    path: '/v1/users/{user_id}',
    of: (id) => ({ user_id: id }),
    part: '', // for administrators of everything
    named: (r) => ({ name: text(r.name) || text(r.email) || text(r.subject), mark: text(r.user_id).slice(-6) }),
  },
  wh: {
    path: '/v1/webhooks/{webhook_id}',
    of: (id) => ({ webhook_id: id }),
    part: 'webhooks',
    named: (r) => ({ name: host(text(r.url)), mark: text(r.webhook_id).slice(-6) }),
  },
  dlv: {
    path: '/v1/webhook-deliveries/{delivery_id}',
    of: (id) => ({ delivery_id: id }),
    part: 'webhook-deliveries',
    named: (r) => ({ name: text(r.event_type), mark: text(r.delivery_id).slice(-6) }),
  },
  evt: {
    path: '/v1/events/{event_id}',
    of: (id) => ({ event_id: id }),
    part: 'events',
    named: (r) => ({ name: text(r.type), mark: text(r.id).slice(-6) }),
  },
  req: {
    path: '/v1/requests/{request_id}',
    of: (id) => ({ request_id: id }),
    part: 'requests',
    foreign: true,
    named: (r) => ({ name: `${text(r.method)} ${text(r.path)}`, mark: text(r.request_id).slice(-6) }),
  },
};

// kindOf returns the kind of record that an identifier names.
export const kindOf = (id: string): Kind | undefined =>
  /^[a-z]+_[0-9a-z]{26}$/.test(id) ? kinds[id.slice(0, id.indexOf('_'))] : undefined;

const most = 50; // records that are read for the names of a list

// A Ref is an identifier of which a name is wanted. That of a route is found with its gateway only.
export interface Ref {
  id: string | null | undefined;
  gateway_id?: string;
}

// useNames reads the records that a list refers to, as far as the session's key may, and returns a function that
// gives the name of an identifier, or the identifier while that is not known.
export function useNames(refs: Ref[]): { nameOf: (id: string) => string; known: (id: string) => boolean } {
  const scope = useAccount()?.key.scope ?? '';
  const wanted = new Map<string, { kind: Kind; path: Record<string, string> }>();
  for (const { id, gateway_id } of refs) {
    const kind = id && wanted.size < most && !wanted.has(id) ? kindOf(id) : undefined;
    const path = kind && id ? kind.of(id, gateway_id) : null;
    if (kind && id && path && refusal(scope, 'read', kind.part) === null) wanted.set(id, { kind, path });
  }
  const ids = [...wanted.keys()];
  const read = useQueries({
    queries: [...wanted.values()].map(({ kind, path }) => ({
      queryKey: [kind.path, path, {}],
      queryFn: ({ signal }: { signal: AbortSignal }) => api.get(kind.path, { path, signal } as CallOptions) as Promise<Answer<unknown>>,
      staleTime: 300_000,
      retry: false,
    })),
  });
  const named = ids.flatMap((id, i): Named[] => {
    const record = read[i]?.data?.data;
    const kind = wanted.get(id)?.kind;
    return record && kind ? [{ id, ...kind.named(record as Fields) }] : [];
  });
  return { nameOf: tellApart(named), known: (id) => named.some((n) => n.id === id) };
}

// markedGateways are gateways as tellApart takes them.
export const markedGateways = (gateways: Schemas['Gateway'][]): Named[] =>
  gateways.map((g) => ({ id: g.gateway_id, name: g.name, mark: g.hostname }));
