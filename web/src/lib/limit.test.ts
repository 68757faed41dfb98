import { expect, test } from 'vitest';
import {
  anyInFlight,
  capacity,
  doubled,
  inFlightFlag,
  inFlightText,
  inFlightValue,
  limitLabel,
  noLimit,
  showLimits,
  spellLimit,
} from './limit';

// Guarantee: a limit is said in words, and twice the limit is exact for every count.
test('a limit in words, and twice as much', () => {
  expect(spellLimit({ ...noLimit, sustained: '5/min' })).toBe('5 per minute');
  expect(spellLimit({ sustained: '1000/s', burst: '2000/s', daily: '50000/day' })).toBe('1,000 per second, 2,000 at once, 50,000 per day');
  expect(capacity({ ...noLimit, sustained: '5/min' })).toBe(5);
  expect(capacity({ ...noLimit, sustained: '5/min', burst: '9/min' })).toBe(9);
  expect(doubled({ sustained: '5/min', burst: '', daily: '10/day' }, false)).toEqual({ sustained: '10/min', burst: '', daily: '10/day' });
  expect(doubled({ sustained: '5/min', burst: '', daily: '9007199254740993/day' }, true).daily).toBe('18014398509481986/day');
});

// Guarantee: what a form shows of the requests in flight of a route is what it sends, as a whole; an empty number removes the
// limit; and the list of routes says it beside the rate.
test('requests in flight of a route', () => {
  const [all, each] = [
    { max: 5, per: null },
    { max: 1000, per: 'key' as const },
  ];
  expect(inFlightValue(inFlightText(all))).toEqual({ max: 5 });
  expect(inFlightValue(inFlightText(each))).toEqual({ max: 1000, per: 'key' });
  expect(inFlightText(null)).toEqual(anyInFlight);
  expect(inFlightValue({ max: ' ', per: 'key' })).toBeNull();
  expect([inFlightValue({ max: '1,000', per: 'shared' }), inFlightValue({ max: 'few', per: 'shared' })]).toEqual([
    { max: 1000 },
    { max: 'few' },
  ]);
  expect([all, each, null].map((c) => inFlightFlag(inFlightText(c)))).toEqual(['5', '1000/key', '']);
  const rate_limit = { sustained: '10/s', burst: null, daily: null, per: null };
  expect(showLimits({ rate_limit, concurrency: each })).toBe('10/s, 1,000 in flight per key');
  expect(showLimits({ rate_limit: null, concurrency: all })).toBe('5 in flight');
  expect(showLimits({ rate_limit: null, concurrency: null })).toBe('–');
});

// Guarantee: a limit of requests in flight is never named as if it were the rate of a key or a route.
test('the name of a limit in lists', () => {
  const inFlight = (limit_name: string | null) => limitLabel({ limit_scope: 'concurrency', limit_name });
  expect(['pro.parallel', 'route', 'key', null].map(inFlight)).toEqual([
    'pro.parallel',
    'requests in flight of the route',
    'requests in flight of the key',
    'requests in flight',
  ]);
  expect(limitLabel({ limit_scope: 'plan', limit_name: 'pro.per-minute' })).toBe('pro.per-minute');
  expect(limitLabel({ limit_scope: 'route', limit_name: null })).toBe('route');
  expect(limitLabel({})).toBe('');
});
