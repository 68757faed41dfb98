import { expect, test } from 'vitest';
import { amountWords, exactly, meterProblem, meterSuggestions, meterWords, periodWords, toView, unitsOf, viewOf } from './usage';

// Guarantee: units of bytes have a unit, all others every digit, beyond 2^53 as well.
test('unitsOf', () => {
  expect(unitsOf('requests', 4120)).toBe('4,120');
  expect(unitsOf('requests', 9_007_199_254_740_993n)).toBe('9,007,199,254,740,993');
  expect(unitsOf('bytes_in', 1536)).toBe('1.5 KiB');
  expect(unitsOf('bytes_out', 12n)).toBe('12 B');
});

// Guarantee: an amount is exact, and says what is counted.
test('amounts of meters', () => {
  expect(amountWords('requests', 1)).toBe('1 request');
  expect(amountWords('bytes_out', 10 * 1024 ** 3)).toBe('10 GiB of responses');
  expect(amountWords('bytes_in', 1_234_567)).toBe('1,234,567 bytes of requests');
  expect(amountWords('tokens', 5000)).toBe('5,000 tokens');
  expect([exactly('requests', 5000), exactly('bytes_in', 5000)]).toEqual(['5,000', '5 kB']);
  expect(unitsOf('bytes_out', 1_500_000, 2_000_000)).toBe('1.5 MB');
});

// Guarantee: the meters of Keygate, and each meter of plans once, are suggested for a limit.
test('the suggestions for a meter', () => {
  const plan = (...names: string[]) => ({ limits: names.map((meter) => ({ meter })) });
  expect(meterSuggestions([])).toEqual(['requests', 'bytes_in', 'bytes_out']);
  expect(meterSuggestions([plan('tokens', 'requests'), plan('cents', 'tokens')])).toEqual([
    'requests',
    'bytes_in',
    'bytes_out',
    'cents',
    'tokens',
  ]);
});

// Guarantee: the form takes the names of meters that the API takes.
test('the name of a meter', () => {
  for (const name of ['tokens', 'a', '0_z', 'x'.repeat(32)]) expect(meterProblem(name), name).toBeUndefined();
  for (const name of ['', 'Tokens', 'a b', 'gpt-4', 'é', 'x'.repeat(33)]) expect(meterProblem(name), name).toMatch(/^must have 1 to 32/);
});

// Guarantee: a meter of the account counts units, whatever its name begins with.
test('only the meters of Keygate count bytes', () => {
  expect(unitsOf('bytes_cached', 1536)).toBe('1,536');
  expect(amountWords('bytes_cached', 1536)).toBe('1,536 bytes_cached');
});

test('meterWords shows a meter that is not known by its name', () => {
  expect(meterWords('bytes_out')).toBe('bytes out');
  expect(meterWords('tokens')).toBe('tokens');
});

// Guarantee: hours are shown in the browser's zone, also those that a quota's window has cut, and days in UTC.
test('periodWords', () => {
  const words = (from: string, to: string, zone: string) => periodWords({ period_start: from, period_end: to }, zone);
  expect(words('2026-11-28T17:00:00Z', '2026-11-28T18:00:00Z', 'UTC')).toBe('28 Nov, 17:00–18:00');
  expect(words('2026-11-28T23:00:00Z', '2026-11-29T00:00:00Z', 'UTC')).toBe('28 Nov, 23:00–00:00');
  expect(words('2026-11-28T17:00:00Z', '2026-11-28T18:00:00Z', 'Asia/Kolkata')).toBe('28 Nov, 22:30–23:30');
  expect(words('2026-11-28T17:20:00Z', '2026-11-28T18:00:00Z', 'UTC')).toBe('28 Nov, 17:20–18:00');
  expect(words('2026-11-28T00:00:00Z', '2026-11-29T00:00:00Z', 'America/New_York')).toBe('28 Nov 2026');
});

// Guarantee: days are never asked for open records, which they do not have, and a time of hours is not kept for days.
test('the views of the screen', () => {
  expect(viewOf({})).toBe('final');
  expect(viewOf({ state: 'open' })).toBe('open');
  expect(viewOf({ state: 'open', interval: '1d' })).toBe('days');
  expect(toView('open', 'days')).toEqual({ state: undefined, interval: '1d', since: undefined, until: undefined });
  expect(toView('days', 'final')).toEqual({ state: undefined, interval: undefined, since: undefined, until: undefined });
  expect(toView('final', 'open')).not.toHaveProperty('since');
});
