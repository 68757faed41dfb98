import { expect, test } from 'vitest';
import {
  abortAbove,
  badWords,
  canaryBody,
  canaryDefaults,
  canaryFlags,
  explanationWords,
  type CanaryValues,
  hasEnded,
  leastTime,
  niceTop,
  shareOf,
  stepsOf,
  waitsForPush,
  weightWords,
} from './canary';

const values: CanaryValues = { ...canaryDefaults, upstream: 'next', which: 'all', routes: [], when_done: 'hold' };

// Guarantee: what is as it is without being said is not sent.
test('a form that is not touched sends the upstream alone', () => {
  expect(canaryBody(values)).toEqual({ upstream: 'next' });
  expect(canaryFlags(values)).toEqual(['--upstream next']);
});

// Guarantee: what was typed is sent as the API takes it. What is no number is sent as it is, so that the server says what is wrong.
test('what was touched is sent', () => {
  const v: CanaryValues = {
    upstream: 'next',
    which: 'some',
    routes: ['rt_1', 'rt_2'],
    steps: '2.5 %, 10%,soon;50',
    hold: ' 1h ',
    errors: '0.5',
    latency: '1.5',
    min_requests: '2,000',
    when_done: 'promote',
  };
  expect(canaryBody(v)).toEqual({
    upstream: 'next',
    routes: ['rt_1', 'rt_2'],
    steps: [2.5, 10, 'soon', 50],
    hold: '1h',
    abort: { errors: { more_than: 0.5 }, latency: { p95_ratio: 1.5 } },
    min_requests: 2000,
    when_done: 'promote',
  });
  expect(canaryFlags(v).join(' ')).toBe(
    '--upstream next --route rt_1 --route rt_2 --steps 2.5,10,soon,50 --hold 1h --errors-more-than 0.5 --p95-ratio 1.5 --min-requests 2000 --when-done promote',
  );
});

// Guarantee: a rule that is left empty does not hold, and without any the server says that there must be one.
test('an empty rule is none', () => {
  expect(canaryBody({ ...values, latency: '2' })).toEqual({
    upstream: 'next',
    abort: { errors: { more_than: 1 }, latency: { p95_ratio: 2 } },
  });
  expect(canaryBody({ ...values, errors: '', latency: '2' })).toEqual({ upstream: 'next', abort: { latency: { p95_ratio: 2 } } });
  expect(canaryFlags({ ...values, errors: '', latency: '2' })).toEqual(['--upstream next', '--errors-more-than 100', '--p95-ratio 2']);
  expect(canaryBody({ ...values, errors: ' ' })).toEqual({ upstream: 'next', abort: {} });
  expect(stepsOf(' ')).toEqual([]);
});

// Guarantee: how long a canary takes at least is said only of steps and a hold that are some.
test('the least time', () => {
  expect(leastTime('1, 5, 25, 50', '10m')).toBe('40 min');
  expect(leastTime('1, 5', '1h30m')).toBe('3 h');
  expect(leastTime('1 %', '90s')).toBe('2 min');
  for (const [steps, hold] of [
    ['1, x', '10m'],
    ['1', '10'],
    ['1', 'ten minutes'],
  ] as const)
    expect(leastTime(steps, hold)).toBe('');
});

// Guarantee: a canary that is promoted or aborted is over, and one that is held at 100 % waits for a push.
test('what a state means', () => {
  expect((['running', 'paused', 'held'] as const).some((state) => hasEnded({ state }))).toBe(false);
  expect((['promoted', 'aborted'] as const).every((state) => hasEnded({ state }))).toBe(true);
  expect(waitsForPush({ state: 'held', lines: ['{}'] })).toBe(true);
  expect(waitsForPush({ state: 'held', lines: [] })).toBe(false);
  expect(weightWords({ weight: 2.5 })).toBe('2.5 %');
  expect(weightWords({ weight: null })).toBe('–');
});

test('an explanation is a sentence', () => {
  expect(explanationWords({ explanation: 'paused by hand' })).toBe('Paused by hand');
  for (const explanation of ['18 of 290 failed', 'too_few_requests: 3 requests on next', ''])
    expect(explanationWords({ explanation })).toBe(explanation);
});

// Guarantee: the bounds are those by which the server decides (internal/canary, Bounds), for any number of requests.
test('the bounds of a share', () => {
  for (const [requests, bad, ...bounds] of [
    [10, 0, 0.0, 41.6916, 0.0, 49.2396],
    [3, 3, 3.8246, 100.0, 2.4093, 100.0],
    [290, 18, 2.2873, 12.8212, 2.0377, 13.6038],
    [28710, 31, 0.0455, 0.2111, 0.0422, 0.2208],
    [1000, 0, 0.0, 0.7477, 0.0, 0.8852],
    [1000, 500, 42.8716, 57.1284, 42.4109, 57.5891],
    [1, 1, 0.0727, 100.0, 0.0182, 100.0],
    [1000000000, 20000000, 1.9976, 2.0024, 1.9975, 2.0025],
  ] as const) {
    const [next, other] = [shareOf('next', { requests, bad })!, shareOf('other', { requests, bad })!];
    expect(next.of).toBeCloseTo((100 * bad) / requests, 6);
    for (const [i, bound] of [next.lower, next.upper, other.lower, other.upper].entries()) expect(bound).toBeCloseTo(bounds[i]!, 3);
  }
  expect(shareOf('next', { requests: 0, bad: 0 })).toBeNull();
});

// Guarantee: a step is aborted above what the other side has at most and what is allowed beyond it; without the rule, or without
// requests, nothing is said.
test('the share above which a step is aborted', () => {
  const other = shareOf('other', { requests: 28710, bad: 31 });
  expect(abortAbove({ abort: { errors: { more_than: 1 }, latency: null } }, other)).toBeCloseTo(1.2208, 3);
  expect(abortAbove({ abort: { errors: { more_than: 1 }, latency: null } }, null)).toBeNull();
  expect(abortAbove({ abort: { errors: null, latency: { p95_ratio: 2 } } }, other)).toBeNull();
  expect(abortAbove({ abort: { errors: { more_than: 100 }, latency: null } }, other)).toBeNull();
});

test('scales end at 1, 2 or 5, and shares are said in words', () => {
  expect([0, 0.3, 1, 1.2, 4, 60, 110].map(niceTop)).toEqual([1, 0.5, 1, 2, 5, 100, 200]);
  expect(badWords({ requests: 290, bad: 18 })).toBe('18 (6.2 %)');
  expect(badWords({ requests: 0, bad: 0 })).toBe('–');
});
