import { expect, test } from 'vitest';
import type { Entry } from './entry';
import { merge } from './follow';

const entry = (n: number): Entry => ({
  time: `2026-01-01T00:00:${String(n).padStart(2, '0')}Z`,
  request_id: `req_${n}`,
  kind: 'authentication',
  outcome: 'success',
  method: 'GET',
  path: '/',
  client_ip: '',
  gateway_id: null,
  key_id: null,
  key_prefix: null,
  credential: null,
  issuer_id: null,
  subject: null,
  count: 1,
});
const page = (newest: number, oldest: number) => Array.from({ length: newest - oldest + 1 }, (_, i) => entry(newest - i));

test('new records stand above known ones, once each', () => {
  const lines = merge(merge([], page(3, 1)), page(5, 2));
  expect(lines.map((l) => ('entry' in l ? l.entry.request_id : 'skipped'))).toEqual(['req_5', 'req_4', 'req_3', 'req_2', 'req_1']);
});

test('a page that does not reach the known records leaves a gap that is shown', () => {
  const lines = merge(merge([], page(3, 1)), page(9, 8));
  expect(lines.map((l) => ('entry' in l ? l.entry.request_id : 'skipped'))).toEqual([
    'req_9',
    'req_8',
    'skipped',
    'req_3',
    'req_2',
    'req_1',
  ]);
});

test('the page keeps a bounded number of lines', () => {
  let lines = merge([], []);
  for (let n = 0; n < 20; n++)
    lines = merge(
      lines,
      Array.from({ length: 50 }, (_, i) => ({ ...entry(0), request_id: `req_${n}_${i}` })),
    );
  expect(lines.length).toBe(501);
});
