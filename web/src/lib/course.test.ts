import { expect, test } from 'vitest';
import { courseOf, isCourseSpan, startsOf } from './course';
import type { UsageRecord } from './usage';

const now = Date.parse('2026-11-29T12:34:56Z');
const record = (usage_id: string, period_start: string, units: number | bigint, requests = 1): UsageRecord =>
  ({ usage_id, period_start, units, requests }) as UsageRecord;

// Guarantee: a span has its hours, or its days of UTC, up to the present one.
test('the hours and days of a span', () => {
  const [hours, days] = [startsOf('24h', now), startsOf('30d', now)];
  expect([hours.length, startsOf('7d', now).length, days.length]).toEqual([24, 168, 30]);
  const iso = (t?: number) => new Date(t ?? 0).toISOString();
  expect([iso(hours[0]), iso(hours.at(-1))]).toEqual(['2026-11-28T13:00:00.000Z', '2026-11-29T12:00:00.000Z']);
  expect([iso(days[0]), iso(days.at(-1))]).toEqual(['2026-10-31T00:00:00.000Z', '2026-11-29T00:00:00.000Z']);
  expect([isCourseSpan('7d'), isCourseSpan('8d'), isCourseSpan(undefined)]).toEqual([true, false, false]);
});

// Guarantee: records are added up by the hour or day in which they begin, exactly beyond 2^53; one that was read as open and as
// final counts once, as final; and one outside of the span does not count.
test('records become a course', () => {
  const huge = 9_007_199_254_740_993n;
  const records = [
    record('a', '2026-11-29T12:00:00Z', 5), // open
    record('b', '2026-11-29T12:00:00Z', 2, 2), // another key
    record('c', '2026-11-29T11:30:00Z', huge), // a window of a quota began within the hour
    record('d', '2026-11-29T11:00:00Z', 1),
    record('e', '2026-11-28T12:59:00Z', 100),
    record('a', '2026-11-29T12:00:00Z', 7, 3), // final
  ];
  const hours = courseOf(records, '24h', now);
  expect([hours.units.at(-1), hours.units.at(-2), hours.units.at(-3)]).toEqual([9n, huge + 1n, 0n]);
  expect([hours.total, hours.requests]).toEqual([huge + 10n, 7n]);
  const days = courseOf(records, '30d', now);
  expect([days.units.at(-1), days.units.at(-2), days.total]).toEqual([huge + 10n, 100n, huge + 110n]);
});
