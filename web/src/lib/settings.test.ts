import { expect, test } from 'vitest';
import type { Schemas } from '../api/client';
import { type Field, gatewaySettings, matches, upstreamSettings } from './settings';

const { bodyOf, flagsOf, maskSecrets, sections, valuesOf } = gatewaySettings;

const record = {
  gateway_id: 'gw_1',
  name: 'orders',
  default: false,
  upstream_url: 'http://127.0.0.1:1',
  hostname: 'o.localhost',
  global_rate_limit: { sustained: '10/s', burst: null },
  timeout: '60s',
  upstream_headers: { 'X-A': '***' },
  cors: null,
  max_body_bytes: null,
  revision: null,
  created_at: '2026-01-01T00:00:00Z',
  key_headers: ['Authorization'],
  allow_encoded_slashes: false,
  cut_streams: true,
  self_service: { usage: true, rotate: false },
} as unknown as Schemas['Gateway'];
const values = valuesOf(record);
const field = (path: string): Field => sections.flatMap((s) => s.fields).find((f) => f.path === path)!;

test('nothing touched sends nothing', () => expect(bodyOf({}, values)).toEqual({}));

test('a touched field is sent alone', () => expect(bodyOf({ timeout: '5s' }, { ...values, timeout: '5s' })).toEqual({ timeout: '5s' }));

test('a setting that is emptied is removed', () => {
  expect(bodyOf({ timeout: '' }, { ...values, timeout: '' })).toEqual({ timeout: null });
  expect(bodyOf({ 'global_rate_limit.sustained': '' }, { ...values, 'global_rate_limit.sustained': '' })).toEqual({
    global_rate_limit: null,
  });
});

test('a stored header is kept beside a new one', () => {
  const upstream_headers = 'X-A: ***\nX-B: a:b';
  expect(bodyOf({ upstream_headers }, { ...values, upstream_headers })).toEqual({ upstream_headers: { 'X-A': '***', 'X-B': 'a:b' } });
});

test('an error stands at its field', () => {
  expect(matches(field('global_rate_limit.burst'), 'global_rate_limit.burst')).toBe(true);
  expect(matches(field('cors.origins'), 'cors.origins[1]')).toBe(true);
  expect(matches(field('upstream_headers'), 'upstream_headers.X-B')).toBe(true);
  expect(matches(field('name'), 'hostname')).toBe(false);
});

test('methods without an origin do not end CORS without a word', () => {
  expect(bodyOf({ 'cors.methods': 'GET' }, { ...values, 'cors.methods': 'GET' })).toEqual({ cors: { origins: [], methods: ['GET'] } });
  expect(bodyOf({ 'cors.origins': '' }, { ...values, 'cors.methods': 'GET' })).toEqual({ cors: null });
});

test('maintenance is turned on with its parts, and off as a whole', () => {
  const changes = { maintenance: 'true', 'maintenance.message': "back o'clock", 'maintenance.allow': '10.0.0.0/8, ::1/128' };
  expect(values.maintenance).toBe('false');
  expect(bodyOf(changes, { ...values, ...changes })).toEqual({
    maintenance: { message: "back o'clock", allow: ['10.0.0.0/8', '::1/128'] },
  });
  expect(flagsOf(changes, { ...values, ...changes })).toHaveLength(4);
  expect(bodyOf({ maintenance: 'true' }, { ...values, maintenance: 'true' })).toEqual({ maintenance: {} });
  const on = valuesOf({ ...record, maintenance: { message: 'soon', allow: [] } });
  expect([on.maintenance, on['maintenance.message'], on['maintenance.allow']]).toEqual(['true', 'soon', '']);
  expect(bodyOf({ maintenance: 'false' }, { ...on, maintenance: 'false' })).toEqual({ maintenance: null });
  expect(flagsOf({ maintenance: 'false' }, { ...on, maintenance: 'false' })).toEqual(['--maintenance=false']);
  expect(matches(field('maintenance.allow'), 'maintenance.allow[1]')).toBe(true);
});

test('rules for headers are sent as a whole, and removed when both are empty', () => {
  const rules = { set: { 'X-Real-IP': '${client_ip}' }, remove: ['X-Debug', 'X-B'] };
  const on = valuesOf({ ...record, request_headers: rules });
  expect([on['request_headers.set'], on['request_headers.remove']]).toEqual(['X-Real-IP: ${client_ip}', 'X-Debug, X-B']);
  const changes = { 'request_headers.set': 'X-Real-IP: ${client_ip}\nX-A: b=c' };
  expect(bodyOf(changes, { ...on, ...changes })).toEqual({
    request_headers: { set: { 'X-Real-IP': '${client_ip}', 'X-A': 'b=c' }, remove: ['X-Debug', 'X-B'] },
  });
  expect(flagsOf(changes, { ...on, ...changes })).toEqual([
    "--request-header 'X-Real-IP=${client_ip}'",
    '--request-header X-A=b=c',
    '--remove-request-header X-Debug',
    '--remove-request-header X-B',
  ]);
  const none = { 'request_headers.set': '', 'request_headers.remove': '' };
  expect(bodyOf(none, { ...on, ...none })).toEqual({ request_headers: null });
  expect(matches(field('request_headers.remove'), 'request_headers.remove[1]')).toBe(true);
});

test('a list of addresses that is emptied is removed', () => {
  expect(bodyOf({ allow_ips: '10.0.0.0/8, ::1/128' }, { ...values })).toEqual({ allow_ips: ['10.0.0.0/8', '::1/128'] });
  expect(bodyOf({ allow_ips: '' }, { ...values })).toEqual({ allow_ips: null });
});

test('a switch is sent with the others of its setting', () => {
  const changes = { 'self_service.rotate': 'true' };
  const after = { ...values, ...changes };
  expect(values['self_service.usage']).toBe('true');
  expect(bodyOf(changes, after)).toEqual({ self_service: { usage: true, rotate: true } });
  expect(flagsOf(changes, after)).toEqual(['--self-service-rotate=true']);
});

test('an integer beyond 2^53 stays exact', () => {
  expect(bodyOf({ max_body_bytes: '9007199254740993' }, values)).toEqual({ max_body_bytes: 9007199254740993n });
});

test('a command line has one flag for each value, and no secret', () => {
  const changes = { 'cors.origins': 'https://a.example, https://b.example', upstream_headers: 'X-A: secret' };
  const flags = flagsOf(changes, { ...values, ...changes }).join(' ');
  expect(flags).toBe('--upstream-headers-file FILE --cors-origin https://a.example --cors-origin https://b.example');
  expect(maskSecrets({ upstream_headers: { 'X-A': 'secret', 'X-B': '***' }, upstream_client_key: 'pem' })).toEqual({
    upstream_headers: { 'X-A': '…', 'X-B': '***' },
    upstream_client_key: '…',
  });
});

const retries = { attempts: 1, budget_percent: 20, on: ['connect', 'reset'], idempotency_key: false };
const ejection = { failures: 3, on: ['reset', '503'], base: '20s', max: '300s', max_percent: 50 };

// Guarantee: a setting with parts is sent as a whole, and has one flag; a list of choices is sent also if it is empty, and
// turning ejection off sends false.
test('ejection and retries of an upstream', () => {
  const of = upstreamSettings;
  const before = of.valuesOf({ ejection, retries });
  expect([before.ejection, before['ejection.on'], before['retries.idempotency_key']]).toEqual(['true', 'reset, 503', 'false']);
  const edit = (changes: Record<string, string>) => {
    const after = { ...before, ...changes };
    return [of.bodyOf(changes, after), of.flagsOf(changes, after)];
  };
  expect(edit({ 'ejection.failures': '4' })).toEqual([
    { ejection: { ...ejection, failures: 4 } },
    ['--ejection failures=4,base=20s,max=300s,max-percent=50,on=reset+503'],
  ]);
  expect(edit({ ejection: 'false' })).toEqual([{ ejection: false }, ['--ejection false']]);
  expect(edit({ 'retries.on': '', 'retries.idempotency_key': 'true' })).toEqual([
    { retries: { ...retries, on: [], idempotency_key: true } },
    ['--retries attempts=1,budget-percent=20,idempotency-key'],
  ]);
});

// Guarantee: ejection that was turned off is turned on with the defaults, which a new upstream has too.
test('ejection is turned on with its defaults', () => {
  const standard = { failures: 5, on: ['connect', 'reset'], base: '10s', max: '300s', max_percent: 50 };
  const off = upstreamSettings.valuesOf({ ejection: false });
  expect(upstreamSettings.bodyOf({ ejection: 'true' }, { ...off, ejection: 'true' })).toEqual({ ejection: standard });
  const fresh = upstreamSettings.valuesOf();
  expect([fresh.balance, fresh.ejection, fresh['ejection.failures'], fresh.timeout]).toEqual(['least_requests', 'true', '5', '']);
});

// Guarantee: an error of a setting with parts stands at the first of them, and at no switch.
test('an error of an ejection stands at one field', () => {
  const at = (error: string) =>
    upstreamSettings.sections
      .flatMap((s) => s.fields)
      .filter((f) => matches(f, error))
      .map((f) => f.path);
  expect(at('ejection')).toEqual(['ejection.failures']);
  expect(at('ejection.on[1]')).toEqual(['ejection.on']);
});

const health = {
  path: '/healthz',
  grpc: null,
  tcp: false,
  interval: '10s',
  timeout: '2s',
  unhealthy: 2,
  healthy: 2,
  statuses: '200-299,304',
  headers: { 'X-Probe': '***' },
};

// Guarantee: checks are sent as a whole, without headers that were not touched and, without a path, without statuses; they end with
// the path, gRPC service or connection. "" stands for the gRPC service of the whole server. A header's value is not shown.
test('the checks of an upstream', () => {
  const of = upstreamSettings;
  const edit = (from: object | null, changes: Record<string, string>) => {
    const before = of.valuesOf({ health: from });
    const after = { ...before, ...changes };
    return [of.bodyOf(changes, after), of.flagsOf(changes, after).join(' ')];
  };
  const { grpc: _, headers: __, ...sent } = health;
  expect(edit(health, { 'health.interval': '5s' })).toEqual([
    { health: { ...sent, interval: '5s' } },
    '--health path=/healthz,interval=5s,timeout=2s,unhealthy=2,healthy=2,statuses=200-299+304',
  ]);
  expect(edit(health, { 'health.path': '' })).toEqual([{ health: null }, "--health ''"]);
  expect(edit(null, { 'health.tcp': 'true' })).toEqual([
    { health: { tcp: true, interval: '10s', timeout: '2s', unhealthy: 2, healthy: 2 } },
    '--health tcp,interval=10s,timeout=2s,unhealthy=2,healthy=2',
  ]);
  const rest = { tcp: false, interval: '10s', timeout: '2s', unhealthy: 2, healthy: 2 };
  expect(edit(health, { 'health.path': '', 'health.grpc': '""' })).toEqual([
    { health: { grpc: '', ...rest } },
    '--health grpc,interval=10s,timeout=2s,unhealthy=2,healthy=2',
  ]);
  expect(of.valuesOf({ health: { ...health, path: null, grpc: '' } })['health.grpc']).toBe('""');
  expect(edit(health, { 'health.headers': '' })[0]).toEqual({ health: { ...sent, headers: {} } });
  const [body, flags] = edit(health, { 'health.headers': 'X-Probe: s3cret' });
  expect(flags).toMatch(/^--health path=.* --health-headers-file FILE$/);
  expect(of.maskSecrets(body as Record<string, unknown>)).toEqual({ health: { ...sent, headers: { 'X-Probe': '…' } } });
});
