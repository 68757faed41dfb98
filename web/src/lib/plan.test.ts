import { expect, test } from 'vitest';
import { applying, draftOf, limitBody, limitFlags, newLimit, planAndLimit, planFile, planWords } from './plan';

type Plan = Parameters<typeof applying>[0]['keyPlan'] & {};
type Limit = Plan['limits'][number];

const limit = (name: string, per: Limit['per'], gateway_id: string | null = null): Limit => ({
  name,
  sustained: '600/min',
  burst: null,
  per,
  gateway_id,
  routes: [],
});
const plan = (name: string, ...limits: Limit[]): Plan => ({
  plan_id: `plan_${name}`,
  name,
  title: null,
  limits,
  time_zone: 'UTC',
  anchor_day: 1,
  created_at: '2026-03-01T12:00:00Z',
});

const both = (name: string) => plan(name, limit('shared', 'owner'), limit('own', 'key'));
const named = (placed: ReturnType<typeof applying>) =>
  placed.map((p) => `${p.plan.name}.${p.limit.name} of ${p.from}${p.gatewayId ? ` on ${p.gatewayId}` : ''}`);

// Guarantee: limits per owner are of the owner's plan, else of each gateway's, and never of the key's; those per key are of
// the first plan there is, even if it has none.
test('which limits apply, and where they come from', () => {
  const gateways = [{ gateway_id: 'gw_1', plan: both('default') }, { gateway_id: 'gw_2' }];
  expect(named(applying({ keyPlan: both('k'), ownerPlan: both('o'), gateways }))).toEqual(['o.shared of owner', 'k.own of key']);
  expect(named(applying({ ownerPlan: both('o'), gateways }))).toEqual(['o.shared of owner', 'o.own of owner']);
  expect(named(applying({ keyPlan: both('k'), gateways }))).toEqual(['default.shared of gateway on gw_1', 'k.own of key']);
  expect(named(applying({ gateways }))).toEqual(['default.shared of gateway on gw_1', 'default.own of gateway on gw_1']);
  expect(named(applying({ keyPlan: plan('none'), ownerPlan: both('o'), gateways }))).toEqual(['o.shared of owner']);
  expect(named(applying({ gateways: [] }))).toEqual([]);
});

// Guarantee: a limit for one gateway applies there only.
test('limits of one gateway', () => {
  const of = plan('p', limit('one', 'key', 'gw_1'), limit('two', 'key', 'gw_2'));
  expect(named(applying({ ownerPlan: of, gateways: [] }))).toEqual(['p.one of owner on gw_1', 'p.two of owner on gw_2']);
  expect(named(applying({ gateways: [{ gateway_id: 'gw_2', plan: of }] }))).toEqual(['p.two of gateway on gw_2']);
});

// Guarantee: what a form shows of a limit is what it sends; blank lines and routes without a gateway are left out.
test('a limit in its form', () => {
  const full: Limit = { name: 'a', sustained: '10/s', burst: '20/s', per: 'owner', gateway_id: 'gw_1', routes: ['/a', '/b/*'] };
  expect(limitBody(draftOf(full))).toEqual(full);
  expect(limitBody({ ...newLimit(' a '), sustained: '10/s ', routes: '/a' })).toEqual({ name: 'a', sustained: '10/s', per: 'key' });
  expect(limitBody({ ...draftOf(full), routes: '\n/a\n\n' })).toMatchObject({ routes: ['/a'] });
  expect(limitFlags([limitBody(draftOf(full))])).toEqual(["--limit 'a=10/s,burst=20/s,per=owner,gateway=gw_1,route=/a,route=/b/*'"]);
});

test('a plan in words and as a file', () => {
  expect(planWords([limit('a', 'owner'), limit('b', 'key')])).toBe('600 per minute per owner; 600 per minute per key');
  expect(planWords([])).toBe('no limits');
  expect(planAndLimit('pro.per-minute')).toEqual({ plan: 'pro', limit: 'per-minute' });
  expect(
    planFile(
      { name: 'no', title: 'For: all' },
      [limitBody({ ...newLimit('a'), sustained: '10/s', gateway_id: 'gw_1', routes: '/a/*' })],
      () => 'orders',
    ),
  ).toBe(
    [
      'plans:',
      '  - name: "no"',
      '    title: "For: all"',
      '    limits:',
      '      - name: a',
      '        sustained: 10/s',
      '        per: key',
      '        gateway: orders',
      '        routes: ["/a/*"]',
      '',
    ].join('\n'),
  );
});
