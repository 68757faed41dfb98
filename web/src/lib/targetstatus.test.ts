import { expect, test } from 'vitest';
import type { TargetStatus } from '../api/upstreams';
import { inFlight, inFlightWords, leftWords, removedTargets, serviceOf, stateWords, statusOf, worst } from './targetstatus';

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

test('what is left at a target is said by node', () => {
  expect(leftWords([])).toBe('nothing in flight');
  expect(leftWords([status({ in_flight: 1 }), status({ address: 'b:80', in_flight: 1 }), status({ node: 'node-2' })])).toBe(
    '2 requests in flight: 2 on node-1',
  );
  expect(leftWords([status({ in_flight: 1 }), status({ node: 'node-2', in_flight: 1200 })])).toBe(
    '1,201 requests in flight: 1 on node-1, 1,200 on node-2',
  );
});

// Guarantee: a target is in service unless it drains or is out on every node, and the others are counted by why they are not.
test('an upstream says how many of its targets are in service', () => {
  const target = (url: string, drain = false) => ({ url, weight: 1, backup: false, drain, resolve: 'none' as const });
  const out = (url: string, state: TargetStatus['state'], node = 'node-1') => status({ target: url, state, node });
  const of = (targets: ReturnType<typeof target>[], list: TargetStatus[]) => {
    const { serving, words, others } = serviceOf({ targets, status: list });
    return [serving, words, ...others];
  };
  const [a, b, c] = [target('a'), target('b'), target('c')];
  expect(of([a, b], [out('a', 'healthy'), out('b', 'warming')])).toEqual([2, '2 of 2 in service']);
  expect(of([a, b], [])).toEqual([2, '2 of 2 in service']);
  expect(of([a, b, c], [out('a', 'ejected'), out('b', 'ejected'), out('c', 'unhealthy')])).toEqual([
    0,
    '0 of 3 in service',
    '2 ejected',
    '1 unhealthy',
  ]);
  expect(of([a, target('d', true)], [out('a', 'ejected'), out('a', 'healthy', 'node-2'), out('d', 'ejected')])).toEqual([
    1,
    '1 of 2 in service',
    '1 ejected in part',
    '1 draining',
  ]);
});
