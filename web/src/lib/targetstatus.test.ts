import { expect, test } from 'vitest';
import type { TargetStatus } from '../api/upstreams';
import { inFlight, inFlightWords, removedTargets, stateWords, statusOf, worst } from './targetstatus';

const status = (part: Partial<TargetStatus>): TargetStatus => ({
  target: 'http://a',
  address: 'a:80',
  node: 'node-1',
  degraded: false,
  state: 'healthy',
  draining: false,
  since: '2026-07-01T12:00:00Z',
  until: null,
  reason: null,
  in_flight: 0,
  requests: 0,
  failures: 0,
  last_check: null,
  ...part,
});

test('the state of a target is that of all nodes', () => {
  const list = [status({ in_flight: 2 }), status({ node: 'node-2', state: 'ejected', reason: 'connect', in_flight: 1 })];
  const u = {
    targets: [{ url: 'http://a', weight: 1, backup: false, drain: false, resolve: 'none' as const }],
    status: [...list, status({ target: 'http://gone' })],
  };
  expect(statusOf(u, 'http://a')).toEqual(list);
  expect(removedTargets(u)).toEqual(['http://gone']);
  expect(removedTargets({ targets: [] })).toEqual([]);
  expect(inFlight(list)).toBe(3);
  expect(worst(list)?.node).toBe('node-2');
  expect(worst([status({}), status({ node: 'node-3', state: 'warming' })])?.node).toBe('node-3');
  expect(worst([])).toBeUndefined();
});

test('a state is said in words', () => {
  expect(stateWords(status({}))).toBe('Healthy');
  expect(stateWords(status({ state: 'ejected', reason: 'connect' }))).toBe('Ejected: connect');
  expect(inFlightWords(0)).toBe('nothing in flight');
  expect(inFlightWords(1)).toBe('1 request in flight');
});
