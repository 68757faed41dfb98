import type { Schemas } from '../../api/client';

type Type = Schemas['Event']['type'];

// An Entry describes one type of event, with the data that it carries.
export interface Entry {
  title: string;
  text: string;
  data: Record<string, unknown>;
}

const key: Schemas['KeyEvent'] = {
  key_id: 'key_01jz8y5c3te9b8r2m6q4v7x0dd',
  key_prefix: 'kg_4tQx9Z',
  name: 'Mobile app',
  scope: 'read:orders',
  level: 'gateway',
  owner: 'customer-42',
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  expires_at: null,
};
const owner: Schemas['OwnerEvent'] = { owner_id: 'own_01jz8y5c3te9b8r2m6q4v7x0aa', owner: 'customer-42', name: 'Acme Ltd' };
const threshold: Schemas['QuotaThresholdEvent'] = {
  limit: 'per-month',
  plan: 'pro',
  meter: 'requests',
  percent: 80,
  used: 80_000,
  count: 100_000,
  window_start: '2026-03-01T00:00:00Z',
  window_end: '2026-04-01T00:00:00Z',
  owner: 'customer-42',
  owner_id: 'own_01jz8y5c3te9b8r2m6q4v7x0aa',
  key_id: null,
};
const finalized: Schemas['UsageFinalizedEvent'] = {
  period_start: '2026-03-01T11:00:00Z',
  period_end: '2026-03-01T12:00:00Z',
  records: 312,
};
const rotated: Schemas['KeyRotatedEvent'] = {
  key_id: 'key_01jz8y5c3te9b8r2m6q4v7x0dd',
  key_prefix: 'kg_4tQx9Z',
  overlap_days: 7,
  new_key_id: 'key_01jz8y5c3te9b8r2m6q4v7x0ee',
  by: 'holder',
};
const limited: Schemas['RateLimitExceededEvent'] = {
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  route_id: 'rt_01jz8y5c3te9b8r2m6q4v7x0bb',
  key_id: 'key_01jz8y5c3te9b8r2m6q4v7x0dd',
  key_prefix: 'kg_4tQx9Z',
  limit_scope: 'route',
  limit: 100,
  method: 'GET',
  path: '/orders/{id}',
  sample_rate: 100,
  breaches: 101,
};
const upstream: Schemas['UpstreamErrorEvent'] = {
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  route_id: 'rt_01jz8y5c3te9b8r2m6q4v7x0bb',
  status: 502,
  reason: 'unreachable',
  method: 'GET',
  path: '/orders/{id}',
  request_id: 'req_01jz8y5c3te9b8r2m6q4v7x0ff',
  occurrences: 12,
};
const pushed: Schemas['SpecPushedEvent'] = {
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  revision: 4,
  source: 'repository',
  commit: '2f1c0e6a8d3b45978899aabbccddeeff00112233',
  author: 'Ada <ada@example.com>',
  added: 2,
  removed: 0,
  changed: 1,
};
const sync: Schemas['SyncFailedEvent'] = {
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  commit: '2f1c0e6a8d3b45978899aabbccddeeff00112233',
  branch: 'main',
  path: 'api/openapi.yaml',
  message: 'api/openapi.yaml:12:5: paths.orders: a path must start with a slash',
};
const target: Schemas['TargetEvent'] = {
  target: '10.0.0.1:8443',
  upstreams: [{ gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa', upstream: 'default' }],
  node: 'gw-1',
  reason: 'connect',
  count: 1,
};

const certificate: Schemas['CertificateEvent'] = {
  certificate_id: 'cert_01jz8y5c3te9b8r2m6q4v7x0aa',
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  hostname: 'api.example.com',
  not_after: '2026-12-01T12:00:00Z',
  error: null,
};

const canary: Schemas['CanaryEvent'] = {
  canary_id: 'can_01jz8y5c3te9b8r2m6q4v7x0aa',
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  upstream: 'next',
  step: 2,
  weight: 5,
  explanation: '5 % of the callers go to next. At 1 %: 2 of 1,204 failed on next (0.2 %), 180 of 119,100 on default (0.2 %)',
};

const person = { user_id: 'usr_01jz8y5c3te9b8r2m6q4v7x0dd', email: 'ada@example.com', name: 'Ada Lovelace', role: 'viewer' };

const unreachable: Schemas['KeysUnreachableEvent'] = {
  issuer_id: 'iss_01jz8y5c3te9b8r2m6q4v7x0aa',
  name: 'login',
  issuer: 'https://login.example.com/',
  message: 'the provider refused the connection',
};

// catalogue has every type of event that an endpoint can receive.
export const catalogue: Record<Type, Entry> = {
  'key.created': { title: 'Key created', text: 'A key was created, by itself or in a rotation.', data: { ...key } },
  'key.rotated': { title: 'Key rotated', text: 'A key was rotated. The old key stays valid during the overlap.', data: { ...rotated } },
  'key.revoked': { title: 'Key revoked', text: 'A key was revoked. It is refused from now on.', data: { ...key } },
  'key.expired': {
    title: 'Key expired',
    text: 'A key expired. It is refused from now on.',
    data: { ...key, expires_at: '2026-03-01T12:00:00Z' },
  },
  'owner.suspended': {
    title: 'Owner suspended',
    text: 'An owner was suspended. Requests with its keys are refused from now on.',
    data: { ...owner },
  },
  'owner.resumed': { title: 'Owner resumed', text: 'A suspended owner was resumed. Its keys are let in again.', data: { ...owner } },
  'rate_limit.exceeded': {
    title: 'Rate limit exceeded',
    text: 'A request exceeded a rate limit. Raised for the 1st, 101st, 201st … such request of each gateway, route and limit.',
    data: { ...limited },
  },
  'quota.threshold': {
    title: 'Quota threshold passed',
    text: 'An owner or a key has used a percentage of a quota at which its plan warns. Raised once for each of them in a window.',
    data: { ...threshold },
  },
  'usage.finalized': {
    title: 'Usage records final',
    text: 'The usage records of an hour became final. If more of that hour is counted later, it has another event.',
    data: { ...finalized },
  },
  'gateway.upstream_error': {
    title: 'Upstream error',
    text: 'An upstream returned a 5xx status, could not be reached or timed out. At most one a second for each route and status.',
    data: { ...upstream },
  },
  'upstream.target_down': {
    title: 'Target down',
    text: 'A node sends no more requests to a target, because it failed several times in a row or its check fails. At most one in 10 seconds.',
    data: { ...target },
  },
  'upstream.target_up': {
    title: 'Target up',
    text: 'A target that was down on a node gets requests again. At most one in 10 seconds.',
    data: { ...target, reason: 'answered' },
  },
  'canary.advanced': {
    title: 'Canary advanced',
    text: 'A canary has a greater share of the callers now, or is held after its last step.',
    data: { ...canary },
  },
  'canary.aborted': {
    title: 'Canary aborted',
    text: 'A canary was aborted, by hand or because its upstream is worse. All callers go to the other one again.',
    data: {
      ...canary,
      explanation: '18 of 290 failed on next (6.2 %), 31 of 28,710 on default (0.1 %): at least 2.0 points more; allowed 1.0',
    },
  },
  'canary.promoted': {
    title: 'Canary promoted',
    text: 'The routes of a canary have its upstream now.',
    data: { ...canary, step: 4, weight: 50, explanation: 'promoted: 3 routes have the upstream next now; by hand' },
  },
  'canary.paused': {
    title: 'Canary paused',
    text: 'A canary was paused by hand, by a change of its routes or upstreams, or because it had too few requests. Callers stay on their sides.',
    data: { ...canary, explanation: 'paused by hand' },
  },
  'issuer.unreachable': {
    title: 'Issuer unreachable',
    text: 'The keys of an issuer could not be fetched. Those that were fetched before stay.',
    data: { ...unreachable },
  },
  'certificate.renewed': {
    title: 'Certificate renewed',
    text: 'A hostname has a new certificate by ACME, the first one or a renewal.',
    data: { ...certificate },
  },
  'certificate.failed': {
    title: 'Certificate failed',
    text: 'An attempt to get a certificate failed: the first one in a row, and then once a day. Keygate tries again.',
    data: { ...certificate, error: 'api.example.com does not reach this installation at port 443: its A and AAAA records must lead here' },
  },
  'certificate.expiring': {
    title: 'Certificate expiring',
    text: 'A certificate ends within 14 days and could not be renewed so far.',
    data: { ...certificate, error: 'the certificate authority says: too many failed validations' },
  },
  'user.role_changed': {
    title: 'Role of a user changed',
    text: 'A user has another role: an administrator has changed it, or the identity provider said so at a sign-in.',
    data: { ...person, previous_role: 'admin' },
  },
  'user.suspended': {
    title: 'User suspended',
    text: 'A user was suspended. Its sessions have ended, and it cannot sign in.',
    data: { ...person },
  },
  'gateway.spec_pushed': { title: 'Routes changed', text: 'A push or rollback changed the routes of a gateway.', data: { ...pushed } },
  'gateway.sync_failed': {
    title: 'Sync failed',
    text: 'A commit cannot be pushed, or the repository that a gateway follows cannot be read. Nothing has changed.',
    data: { ...sync },
  },
};

export const eventTypes = Object.keys(catalogue) as Type[];

// sample returns a whole event of a type, as a receiver gets it, but in lines.
export function sample(type: Type): string {
  return JSON.stringify(
    { id: 'evt_01jz8y5c3te9b8r2m6q4v7x0jj', type, created_at: '2026-03-01T12:00:00Z', data: catalogue[type].data },
    null,
    2,
  );
}
