import { expect, test } from 'vitest';
import { noCalendar } from './calendar';
import {
  amountOf,
  applying,
  draftOf,
  exactBytes,
  isWhole,
  limitBody,
  limitFlags,
  newLimit,
  ofKind,
  planAndLimit,
  planFile,
  planWords,
} from './plan';

type Plan = Parameters<typeof applying>[0]['keyPlan'] & {};
type Limit = Plan['limits'][number];

const rate = { quota: null, concurrency: null, meter: 'requests', overage: null, warn_at: null };
const limit = (name: string, per: Limit['per'], gateway_id: string | null = null): Limit => ({
  name,
  sustained: '600/min',
  burst: null,
  ...rate,
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
  const sent = { name: 'a', sustained: '10/s', burst: '20/s', per: 'owner' as const, gateway_id: 'gw_1', routes: ['/a', '/b/*'] };
  const full: Limit = { ...sent, ...rate };
  expect(limitBody(draftOf(full))).toEqual(sent);
  expect(limitBody({ ...newLimit(' a '), sustained: '10/s ', routes: '/a' })).toEqual({ name: 'a', sustained: '10/s', per: 'key' });
  expect(limitBody({ ...draftOf(full), routes: '\n/a\n\n' })).toMatchObject({ routes: ['/a'] });
  expect(limitFlags([limitBody(draftOf(full))])).toEqual(["--limit 'a=10/s,burst=20/s,per=owner,gateway=gw_1,route=/a,route=/b/*'"]);
});

// Guarantee: of a quota its form sends what is not the default, and an empty list of warnings; what was typed for the other
// kind of limit is not sent.
test('a quota in its form', () => {
  const sent = { name: 'q', quota: '1000/day', overage: 'allow' as const, warn_at: [50, 120], per: 'owner' as const };
  const full: Limit = { ...sent, sustained: null, burst: null, concurrency: null, meter: 'requests', gateway_id: null, routes: [] };
  expect(limitBody(draftOf(full))).toEqual(sent);
  expect(limitBody({ ...draftOf(full), sustained: '10/s', burst: '5/s' })).toEqual(sent);
  expect(limitBody({ ...draftOf(full), kind: 'rate', sustained: '10/s' })).toEqual({ name: 'q', sustained: '10/s', per: 'owner' });
  const plain = { ...full, overage: 'refuse' as const, warn_at: [80, 100] };
  expect(limitBody(draftOf(plain))).toEqual({ name: 'q', quota: '1000/day', per: 'owner' });
  expect(limitBody(draftOf({ ...plain, warn_at: [] }))).toEqual({ name: 'q', quota: '1000/day', warn_at: [], per: 'owner' });
  expect(limitBody({ ...draftOf(plain), most: '25,000' })).toMatchObject({ quota: '25000/day' });
  expect([isWhole(limitBody(draftOf(full))), isWhole(limitBody({ ...draftOf(full), most: '' }))]).toEqual([true, false]);
  expect(['tokens', '', 'To'].map((meter) => isWhole(limitBody({ ...draftOf(full), meter })))).toEqual([true, false, false]);
  expect(limitFlags([limitBody(draftOf(full)), limitBody(draftOf({ ...plain, warn_at: [] }))])).toEqual([
    '--limit q=quota:1000/day,overage=allow,warn-at=50,120,per=owner',
    '--limit q=quota:1000/day,warn-at=none,per=owner',
  ]);
  expect(ofKind(newLimit('per-minute'), 'quota')).toEqual({ kind: 'quota', name: 'per-month' });
  expect(ofKind(newLimit('mine'), 'quota')).toEqual({ kind: 'quota' });
  expect(planWords([full])).toBe('1,000 a day per owner, more is allowed');
  expect(planFile({ name: 'pro', title: '', ...noCalendar, time_zone: 'Europe/Berlin' }, [limitBody(draftOf(full))], () => '')).toBe(
    [
      'plans:',
      '  - name: pro',
      '    time_zone: Europe/Berlin',
      '    limits:',
      '      - name: q',
      '        quota: 1000/day',
      '        overage: allow',
      '        warn_at: [50, 120]',
      '        per: owner',
      '',
    ].join('\n'),
  );
});

// Guarantee: a form shows bytes of a limit with a unit where that is exact, and sends every byte; what it sends has a meter
// only if that is not requests; and words, flags and files say what is counted.
test('limits of bytes', () => {
  const quota: Limit = {
    ...limit('q', 'owner'),
    sustained: null,
    quota: '10737418240/month',
    meter: 'bytes_out',
    overage: 'refuse',
    warn_at: [80, 100],
  };
  const rated: Limit = { ...limit('r', 'key'), sustained: '10000000/s', burst: '52428801/s', meter: 'bytes_in' };
  expect(draftOf(quota)).toMatchObject({ meter: 'bytes_out', most: '10 GiB' });
  expect(draftOf(rated)).toMatchObject({ meter: 'bytes_in', sustained: '10 MB/s', burst: '52,428,801/s' });
  const bodies = [limitBody(draftOf(quota)), limitBody(draftOf(rated))];
  expect(bodies).toEqual([
    { name: 'q', quota: '10737418240/month', meter: 'bytes_out', per: 'owner' },
    { name: 'r', sustained: '10000000/s', burst: '52428801/s', meter: 'bytes_in', per: 'key' },
  ]);
  expect(limitBody({ ...draftOf(quota), most: '1.5 GB', overage: 'allow' })).toMatchObject({ quota: '1500000000/month', overage: 'allow' });
  expect(limitBody({ ...draftOf(rated), sustained: '1 MiB / min', burst: '1048576' })).toMatchObject({
    sustained: '1048576/min',
    burst: '1048576',
  });
  expect(limitBody({ ...draftOf(quota), most: '0.1 GiB' })).toMatchObject({ quota: '0.1 GiB/month' });
  expect(limitBody({ ...draftOf(quota), meter: 'requests' })).toEqual({ name: 'q', quota: '10 GiB/month', per: 'owner' });
  expect(limitFlags(bodies)).toEqual([
    '--limit q=quota:10737418240/month,meter=bytes_out,per=owner',
    '--limit r=10000000/s,burst=52428801/s,meter=bytes_in',
  ]);
  expect(planFile({ name: 'p', title: '', ...noCalendar }, bodies, () => '')).toContain(
    'quota: 10737418240/month\n        meter: bytes_out\n',
  );
  expect(planWords([quota, rated])).toBe(
    '10 GiB of responses a month per owner; 10 MB of requests per second, 52,428,801 bytes at once per key',
  );
  expect(amountOf({ ...rated, burst: null, meter: 'tokens' })).toBe('10,000,000 tokens per second');
  expect(['10 GiB', '10 MB/s', '5', '0.1 GiB', 'lots'].map((text) => exactBytes(text, 'bytes_in'))).toEqual([
    '10,737,418,240',
    '10,000,000',
    '',
    '',
    '',
  ]);
  expect(exactBytes('10 GiB', 'requests')).toBe('');
});

// Guarantee: of requests in flight a form sends their number and nothing of the other kinds, a number with separators too;
// what is no number is sent as it is, so that the server says what is wrong; and words, flags and files say it.
test('limits of requests in flight', () => {
  const sent = { name: 'parallel', concurrency: 5, per: 'owner' as const };
  const full: Limit = { ...limit('parallel', 'owner'), sustained: null, concurrency: 5 };
  expect(draftOf(full)).toMatchObject({ kind: 'concurrency', in_flight: '5' });
  expect(limitBody(draftOf(full))).toEqual(sent);
  expect(limitBody({ ...draftOf(full), sustained: '10/s', most: '5', meter: 'tokens' })).toEqual(sent);
  expect(limitBody({ ...draftOf(full), kind: 'rate', sustained: '10/s' })).toEqual({ name: 'parallel', sustained: '10/s', per: 'owner' });
  expect(limitBody({ ...draftOf(full), in_flight: '1,000' })).toMatchObject({ concurrency: 1000 });
  const [empty, wrong] = ['', 'few'].map((in_flight) => limitBody({ ...draftOf(full), in_flight }));
  expect(wrong).toMatchObject({ concurrency: 'few' });
  expect([isWhole(sent as never), isWhole(empty!)]).toEqual([true, false]);
  expect(limitFlags([limitBody(draftOf(full)), empty!])).toEqual([
    '--limit parallel=concurrency:5,per=owner',
    '--limit parallel=concurrency:COUNT,per=owner',
  ]);
  expect(planWords([full, { ...full, concurrency: 1, per: 'key' }])).toBe('5 requests in flight per owner; 1 request in flight per key');
  expect(planFile({ name: 'p', title: '', ...noCalendar }, [limitBody(draftOf(full))], () => '')).toContain(
    '      - name: parallel\n        concurrency: 5\n        per: owner\n',
  );
  expect(ofKind(newLimit('per-minute'), 'concurrency')).toEqual({ kind: 'concurrency', name: 'parallel' });
  expect(ofKind(draftOf(full), 'quota')).toEqual({ kind: 'quota', name: 'per-month' });
  expect(ofKind({ ...draftOf(full), name: 'mine' }, 'rate')).toEqual({ kind: 'rate' });
});

test('a plan in words and as a file', () => {
  expect(planWords([limit('a', 'owner'), limit('b', 'key')])).toBe('600 per minute per owner; 600 per minute per key');
  expect(planWords([])).toBe('no limits');
  expect(planAndLimit('pro.per-minute')).toEqual({ plan: 'pro', limit: 'per-minute' });
  expect(
    planFile(
      { name: 'no', title: 'For: all', ...noCalendar },
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
