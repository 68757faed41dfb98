import { expect, test } from 'vitest';
import { begun, ended, rate, type Row } from './traffic';

// row is a minute, by its number, with some requests.
const row = (minute: number, requests: number) => ({ start: new Date(minute * 60_000).toISOString(), requests }) as Row;
const minutes = (rows: Row[]) => rows.map((r) => Date.parse(r.start) / 60_000);

// Guarantee: a chart begins with the first request, but has at least five points, and all if there was no request.
test('a chart begins with the first request', () => {
  const hour = (first: number) => Array.from({ length: 60 }, (_, i) => row(i, i >= first ? 1 : 0));
  expect(minutes(begun(hour(20)))[0]).toBe(20);
  expect(minutes(begun(hour(58)))).toEqual([55, 56, 57, 58, 59]);
  expect(begun(hour(60))).toHaveLength(60);
  expect(begun([])).toEqual([]);
});

// Guarantee: the minute that runs is left out, unless nothing would be left; an hour is never left out.
test('a line does not fall in the minute that runs', () => {
  const now = 2.5 * 60_000;
  expect(minutes(ended([row(0, 1), row(1, 2), row(2, 1)], '1m', now))).toEqual([0, 1]);
  expect(minutes(ended([row(0, 0), row(1, 0), row(2, 1)], '1m', now))).toEqual([0, 1, 2]);
  expect(minutes(ended([row(0, 1), row(1, 1)], '1m', now))).toEqual([0, 1]);
  expect(minutes(ended([row(0, 1), row(2, 1)], '1h', now))).toEqual([0, 2]);
});

// Guarantee: a rate is said in the unit in which it is at least one.
test('rates have a unit that fits', () => {
  expect([rate(0, 0), rate(120, 60), rate(1_234_000, 60), rate(30, 60), rate(1, 3600), rate(1, 7200)]).toEqual([
    '0 per second',
    '2 per second',
    '20,567 per second',
    '30 per minute',
    '1 per hour',
    '0.5 per hour',
  ]);
});
