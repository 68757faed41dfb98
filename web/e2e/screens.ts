import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, type Keygate, type Service } from './keygate';

const spec = JSON.stringify({
  openapi: '3.1.0',
  info: { title: 'Orders', version: '1' },
  paths: {
    '/orders': { get: { 'x-keygate-rate-limit': {} }, post: {} },
    '/orders/{id}': { get: {}, delete: {} },
    '/customers': { get: { parameters: [{ in: 'query', name: 'limit', schema: { type: 'integer' } }] } },
    '/broken': { get: {} },
    '/reports/daily': { get: {} },
  },
}).replace(/"x-keygate-rate-limit":\{\}/, '');

// fill makes what a team would have: traffic with refusals and errors, keys in every state, webhooks that
// deliver and that fail.
export async function fill(k: Keygate, upstream: Service): Promise<Record<string, string>> {
  upstream.handler = (request, _body, response) => {
    response.statusCode = request.url?.startsWith('/broken') || request.url === '/failing' ? 503 : 200;
    response.end('{"ok":true}');
  };
  await k.call('POST', '/v1/webhooks', { url: `${upstream.url}/hook`, events: ['key.created', 'key.revoked'] });
  const failing = await k.call('POST', '/v1/webhooks', {
    url: `${upstream.url}/failing`,
    events: ['key.created', 'gateway.upstream_error'],
  });
  const gateway = await k.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    validate: 'report',
    spec,
    global_rate_limit: { sustained: '1000/s', burst: '2000/s' },
  });
  const billing = await k.call('POST', '/v1/gateways', { name: 'billing-eu', upstream_url: 'https://billing.internal.example.com/v2' });
  const upstreams = `/v1/gateways/${billing.gateway_id}/upstreams`;
  await k.call('POST', `${upstreams}/default/targets`, { url: 'https://billing-2.internal.example.com/v2', weight: 3 });
  await k.call('POST', `${upstreams}/default/targets`, { url: 'https://billing-dr.internal.example.com/v2', backup: true });
  await k.call('POST', `/v1/gateways/${billing.gateway_id}/routes`, { path: '/invoices/{id}', methods: ['GET', 'PUT'] });
  await k.call('PUT', `${upstreams}/next`, {
    targets: [{ url: 'https://10.20.0.4:8443' }, { url: 'https://10.20.0.5:8443', drain: true }],
    host: 'billing.internal.example.com',
    headers: { 'X-Api-Token': 'token' },
    ejection: { on: ['connect', 'reset', '503'] },
  });
  const canaries = `/v1/gateways/${billing.gateway_id}/canaries`;
  const aborted = await k.call('POST', canaries, { upstream: 'next' });
  await k.call('POST', `${canaries}/${aborted.canary_id}/abort`);
  const canary = await k.call('POST', canaries, { upstream: 'next', abort: { errors: { more_than: 1 }, latency: { p95_ratio: 1.5 } } });
  const plan = await k.call('POST', '/v1/plans', {
    name: 'pro',
    title: 'Professional',
    limits: [
      { name: 'together', sustained: '6000/min', burst: '200/s', per: 'owner' },
      { name: 'orders', sustained: '600/min', gateway_id: gateway.gateway_id, routes: ['/orders/*', '/customers'] },
      { name: 'per-month', quota: '100/month', per: 'owner', warn_at: [15, 80, 100] },
      { name: 'per-day', quota: '24/day', overage: 'allow' },
    ],
  });
  const issuer = await k.call('POST', '/v1/issuers', {
    name: 'login',
    issuer: 'https://login.example.com/realms/shop',
    audiences: ['https://api.example.com'],
    jwks: { keys: [{ kty: 'OKP', crv: 'Ed25519', kid: '2026-01', x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo' }] },
    required: { email_verified: true },
    claims: { scope: 'realm_access.roles', owner: 'org_id' },
    scope_map: { 'order-admin': 'write:orders' },
    claim_headers: { 'X-User-Email': 'email' },
  });
  await k.call('POST', '/v1/plans', { name: 'free', limits: [{ name: 'per-minute', sustained: '60/min' }] });
  const acme = await k.call('POST', '/v1/owners', { external_id: 'acme', name: 'Acme Ltd', plan: 'pro', metadata: { crm: '4711' } });
  await k.call('POST', `/v1/owners/${acme.owner_id}/grants`, { limit: 'per-month', units: 50, reason: 'Outage of 3 March' });
  const late = await k.call('POST', '/v1/owners', { external_id: 'late-payer', plan: 'free' });
  await k.call('PATCH', `/v1/owners/${late.owner_id}`, { state: 'suspended' });
  const keys: { key: string; key_id: string }[] = [];
  for (const [name, scope, owner, limit] of [
    ['Mobile app', 'read', 'acme', '20/min'],
    ['Billing batch', 'write:orders read', 'acme', null],
    ['Partner portal', 'read:customers', 'partner-7', '100/min'],
    ['CI smoke tests', 'admin', null, null],
  ] as const) {
    keys.push(
      (await k.call('POST', '/v1/keys', { name, scope, ...(owner && { owner }), ...(limit && { rate_limit: limit }) })) as {
        key: string;
        key_id: string;
      },
    );
  }
  await k.call('POST', '/v1/keys', {
    name: 'Trial',
    scope: 'read',
    expires_at: new Date(Date.now() + 3 * 86_400_000).toISOString().slice(0, 10),
  });
  const rotated = await k.call('POST', `/v1/keys/${keys[1]!.key_id}/rotate`, { overlap_days: 7 });
  for (let i = 0; i < 30; i++) await k.request('/orders', keys[0]!.key);
  for (let i = 0; i < 12; i++) await k.request('/orders/7', keys[3]!.key);
  for (let i = 0; i < 3; i++) await k.request('/broken', keys[3]!.key);
  await k.request('/orders', keys[2]!.key);
  await k.request('/customers?limit=all', keys[2]!.key);
  await k.request('/orders');
  await k.call('DELETE', `/v1/keys/${keys[3]!.key_id}`);
  const routes = (await k.call('GET', `/v1/gateways/${gateway.gateway_id}/routes`)).data as { route_id: string; path: string }[];
  await expect.poll(async () => (await k.call('GET', '/v1/requests?limit=50')).data.length).toBeGreaterThan(10);
  await expect
    .poll(async () => (await k.call('GET', `/v1/webhook-deliveries?webhook_id=${failing.webhook_id}`)).data.length)
    .toBeGreaterThan(0);
  return {
    gateway: gateway.gateway_id,
    billing: billing.gateway_id,
    canary: canary.canary_id,
    route: routes.find((r) => r.path === '/orders')!.route_id,
    key: keys[0]!.key_id,
    plan: plan.plan_id,
    issuer: issuer.issuer_id,
    owner: acme.owner_id,
    suspended: late.owner_id,
    rotated: rotated.key_id,
    webhook: failing.webhook_id,
    request: (await k.call('GET', '/v1/requests?limit=1')).data[0].request_id,
    delivery: (await k.call('GET', `/v1/webhook-deliveries?webhook_id=${failing.webhook_id}`)).data[0].delivery_id,
  };
}

// screens are all screens of what fill has made, by name.
export const screens = (id: Record<string, string>): [name: string, path: string][] => [
  ['overview', ''],
  ['gateways', 'gateways'],
  ['gateway-new', 'gateways/new'],
  ['gateway', `gateways/${id.gateway}`],
  ['gateway-routes', `gateways/${id.gateway}/routes`],
  ['route', `gateways/${id.gateway}/routes/${id.route}`],
  ['push', `gateways/${id.gateway}/push`],
  ['revisions', `gateways/${id.gateway}/revisions?from=0&to=1`],
  ['validation', `gateways/${id.gateway}/validation`],
  ['repository', `gateways/${id.gateway}/repository`],
  ['gateway-settings', `gateways/${id.gateway}/settings`],
  ['gateway-targets', `gateways/${id.billing}`],
  ['upstreams', `gateways/${id.billing}/upstreams`],
  ['upstream', `gateways/${id.billing}/upstreams/next`],
  ['upstream-edit', `gateways/${id.billing}/upstreams/next/edit`],
  ['target', `gateways/${id.billing}/upstreams/next/target?url=${encodeURIComponent('https://10.20.0.4:8443')}`],
  ['upstream-new', `gateways/${id.billing}/new-upstream`],
  ['canaries', `gateways/${id.billing}/canaries`],
  ['canary-new', `gateways/${id.billing}/canaries?start=1`],
  ['canary', `gateways/${id.billing}/canaries/${id.canary}`],
  ['routes', 'routes'],
  ['keys', 'keys'],
  ['key-new', 'keys?create=1'],
  ['key', `keys/${id.key}`],
  ['key-rotated', `keys/${id.rotated}`],
  ['owners', 'owners'],
  ['certificates', 'certificates'],
  ['owner-new', 'owners?create=1'],
  ['owner', `owners/${id.owner}`],
  ['owner-suspended', `owners/${id.suspended}`],
  ['plans', 'plans'],
  ['plan-new', 'plans/new'],
  ['plan', `plans/${id.plan}`],
  ['plan-edit', `plans/${id.plan}/edit`],
  ['issuers', 'issuers'],
  ['issuer-new', 'issuers/new'],
  ['issuer', `issuers/${id.issuer}`],
  ['issuer-edit', `issuers/${id.issuer}/edit`],
  ['usage-records', 'usage-records?state=open'],
  ['usage-records-none', 'usage-records'],
  ['requests', 'requests'],
  ['request', `requests/${id.request}`],
  ['webhooks', 'webhooks'],
  ['webhook', `webhooks/${id.webhook}`],
  ['deliveries', 'deliveries'],
  ['delivery', `deliveries/${id.delivery}`],
  ['events', 'events'],
  ['catalogue', 'events/catalogue'],
  ['requests-live', 'requests?live=1'],
  ['users', 'users'],
  ['invitations', 'users/invitations'],
  ['audit', 'audit'],
  ['settings', 'settings'],
  ['help', 'help'],
  ['help-search', 'help?q=rotate'],
  ['help-page', 'help/keys-and-limits'],
  ['missing', 'no/such/page'],
];

const shots = join(import.meta.dirname, '..', '.shots');

// shot keeps a screenshot of the whole page.
export async function shot(page: Page, name: string) {
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
}

// settled waits until nothing is loading.
export async function settled(page: Page) {
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  await expect(page.locator('main .skeleton')).toHaveCount(0);
}

// overflowing returns the page and its panels if they are wider than they are shown.
export function overflowing(page: Page): Promise<string[]> {
  return page.evaluate(() =>
    [document.documentElement, ...document.querySelectorAll<HTMLElement>('main .\\@container')]
      .filter((e) => e.scrollWidth > e.clientWidth)
      .map((e) => `${e.nodeName} ${e.scrollWidth} > ${e.clientWidth}`),
  );
}
