import { expect, test } from 'vitest';
import { courseOf, isCourseSpan, startsOf, windowCourse, windowStart } from './course';
import type { Usage } from './quota';
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

const quota = (of: Partial<Usage>): Usage =>
  ({ used: 0, count: 100, grants: 0, window_start: '2026-11-01T00:00:00Z', window_end: '2026-12-01T00:00:00Z', ...of }) as Usage;

// Guarantee: the course of a quota begins with 0 at its window's start, adds up the records by day, ends at the present with what the
// usage has, never decreases and never exceeds it, and leaves room up to the window's end. A short window has hours.
test('the course of a quota in its window', () => {
  const records = [
    record('a', '2026-11-01T00:00:00Z', 5),
    record('b', '2026-11-03T23:00:00Z', 20),
    record('c', '2026-11-28T10:00:00Z', 90), // more than the usage has
    record('b', '2026-11-03T23:00:00Z', 30), // again, as final
    record('d', '2026-10-31T23:00:00Z', 7), // before
  ];
  const month = windowCourse(records, quota({ used: 40 }), now);
  expect([month.times.length, month.used.length]).toEqual([31, 31]);
  expect([month.times[0], month.times.at(-2), month.times.at(-1)]).toEqual(
    ['2026-11-01', now, '2026-12-01'].map((t) => new Date(t).getTime()),
  );
  expect([month.used.slice(0, 4), month.used[28], month.used.at(-2), month.used.at(-1)]).toEqual([[0, 5, 5, 35], 40, 40, null]);
  const today = { window_start: '2026-11-28T23:30:00Z', window_end: '2026-11-29T23:30:00Z' }; // of another zone
  const day = windowCourse(
    [record('a', '2026-11-28T23:30:00Z', 2), record('b', '2026-11-29T12:00:00Z', 3)],
    quota({ used: 6, ...today }),
    now,
  );
  expect([day.times.length, day.used.slice(0, 2), day.used.at(-3), day.used.at(-2)]).toEqual([16, [0, 2], 5, 6]);
});

// Guarantee: the course of a quota that never resets is that of its last days, with what it had used before.
test('the course of a quota without an end', () => {
  const ever = quota({ used: 50, window_start: '1970-01-01T00:00:00Z', window_end: null });
  const course = windowCourse([record('a', '2026-11-29T10:00:00Z', 8)], ever, now);
  expect(new Date(windowStart(ever, now)).toISOString()).toBe('2026-10-30T00:00:00.000Z');
  expect([course.used[0], course.used.at(-2), course.used.at(-1), course.times.at(-1)]).toEqual([42, 42, 50, now]);
});
