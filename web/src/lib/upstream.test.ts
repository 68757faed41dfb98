import { expect, test } from 'vitest';
import type { Schemas } from '../api/client';
import {
  addressOf,
  newTarget,
  isPlain,
  settingRows,
  showValue,
  targetBody,
  targetFlag,
  upstreamBody,
  upstreamFlags,
  upstreamValues,
} from './upstream';

const target = (url: string, rest: Partial<Schemas['Target']> = {}): Schemas['Target'] => ({
  url,
  weight: 1,
  backup: false,
  drain: false,
  resolve: 'none',
  ...rest,
});
const record: Schemas['Upstream'] = {
  name: 'next',
  targets: [target('https://a'), target('https://b', { weight: 2, backup: true })],
  balance: 'least_requests',
  hash_on: null,
  ejection: { failures: 5, on: ['connect', 'reset'], base: '10s', max: '300s', max_percent: 50 },
  retries: { attempts: 1, budget_percent: 20, on: ['connect', 'reset'], idempotency_key: false },
  health: null,
  refresh: '10s',
  timeout: null,
  host: 'target',
  headers: { 'X-Token': '***' },
  ca: null,
  client_certificate: null,
  client_key: null,
  connect_timeout: null,
  idle_timeout: null,
  max_connection_age: null,
  max_connections: null,
};

// edit returns what is sent for changes of the form of the record, and the flags of the same command.
function edit(changes: Partial<ReturnType<typeof upstreamValues>>, of = upstreamValues(record)) {
  const after = Object.assign({}, of, changes);
  return [upstreamBody(changes, after), upstreamFlags(changes, after).join(' ')];
}

// Guarantee: what a form shows of a target is what it sends, without what is the default.
test('a target in its form', () => {
  const [, second] = upstreamValues(record).targets;
  expect(targetBody(second!)).toEqual({ url: 'https://b', weight: 2, backup: true });
  expect(targetFlag(second!)).toBe('https://b,weight=2,backup');
  expect(targetFlag({ ...newTarget, url: 'http://d', resolve: 'srv' })).toBe('http://d,resolve=srv');
  expect(targetBody({ ...newTarget, url: ' http://c ', drain: true })).toEqual({ url: 'http://c', drain: true });
  expect(targetBody({ ...newTarget, url: 'http://c', weight: 'lots' })).toEqual({ url: 'http://c', weight: 'lots' });
});

// Guarantee: a form sends what was touched, the targets as a whole, and hash_on with the balance hash alone.
test('an upstream in its form', () => {
  const { targets } = upstreamValues(record);
  expect(edit({})).toEqual([{}, '']);
  expect(edit({ targets: targets.slice(0, 1) })).toEqual([{ targets: [{ url: 'https://a' }] }, '--target https://a']);
  expect(edit({ balance: 'hash', hash_on: 'address' })).toEqual([
    { balance: 'hash', hash_on: 'address' },
    '--balance hash --hash-on address',
  ]);
  expect(edit({ balance: 'round_robin', hash_on: 'address' })).toEqual([{ balance: 'round_robin' }, '--balance round_robin']);
  expect(edit({ headers: 'X-Token: new' })).toEqual([{ headers: { 'X-Token': 'new' } }, '--headers-file FILE']);
  expect(showValue(targets)).toBe('https://a https://b,weight=2,backup');
});

// Guarantee: a gateway with one target that takes part sees nothing of upstreams.
test('a plain gateway', () => {
  expect(isPlain([{ targets: [target('http://a')] }])).toBe(true);
  expect(isPlain([{ targets: [target('http://a', { drain: true })] }])).toBe(false);
  expect(isPlain([{ targets: [target('http://a', { resolve: 'a' })] }])).toBe(false);
  expect(isPlain([record])).toBe(false);
  expect(isPlain([{ targets: [target('http://a')] }, { targets: [target('http://b')] }])).toBe(false);
});

// Guarantee: of an upstream its page says how targets are chosen, ejected and tried again, and what else is set, without a secret.
test('the settings of an upstream in words', () => {
  expect(settingRows(record)).toEqual([
    ['Balance', 'Fewest requests in flight'],
    ['Checks', 'None'],
    ['Ejection', 'After 5 failures in a row (connect, reset), for 10s, at most 300s'],
    ['Retries', '1 after connect, reset, at most 20 % of the requests'],
    ['Host', 'target'],
    ['Headers', 'X-Token'],
  ]);
  const other = settingRows({
    ...record,
    balance: 'hash',
    hash_on: 'principal',
    ejection: false,
    health: {
      path: '/healthz',
      grpc: null,
      tcp: false,
      interval: '10s',
      timeout: '2s',
      unhealthy: 2,
      healthy: 3,
      statuses: '200-399',
      headers: { 'X-Probe': '***' },
    },
    retries: { ...record.retries, attempts: 0 },
    ca: '-----BEGIN CERTIFICATE-----',
    max_connections: 7,
  });
  expect(Object.fromEntries(other)).toMatchObject({
    Balance: 'By a hash of principal',
    Ejection: 'Off',
    Checks: 'GET /healthz each 10s, within 2s, with X-Probe, good is 200-399; out after 2 bad, in after 3 good',
    Retries: 'None',
    'Root certificates': 'given',
    'Most connections': '7',
  });
  const named = settingRows({ ...record, targets: [target('https://a', { resolve: 'a' })] });
  expect(Object.fromEntries(named)).toMatchObject({ 'Look up names every': '10s' });
});

test('the address of a target', () => {
  expect(
    ['http://10.0.0.1:3000', 'HTTPS://orders.internal/v2', 'h2c://[::1]:80/a?b', 'https://orders.internal:443'].map(addressOf),
  ).toEqual(['10.0.0.1:3000', 'orders.internal', '[::1]:80', 'orders.internal:443']);
});
