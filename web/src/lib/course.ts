import type { Usage } from './quota';
import type { UsageRecord } from './usage';

const hour = 3_600_000;
const day = 24 * hour;

// The spans over which the use of a meter is shown: how far back, and by what. Days are those of UTC.
export const spans = {
  '24h': { length: day, step: hour },
  '7d': { length: 7 * day, step: hour },
  '30d': { length: 30 * day, step: day },
} as const;
export type CourseSpan = keyof typeof spans;

export const isCourseSpan = (text: string | undefined): text is CourseSpan => text !== undefined && text in spans;

export const stepWords = (span: CourseSpan): string => (spans[span].step === hour ? 'hour' : 'day (UTC)');

// startsOf returns the starts of the hours or days of a span, in milliseconds; now is in the last one.
export function startsOf(span: CourseSpan, now: number): number[] {
  const { length, step } = spans[span];
  const last = Math.floor(now / step) * step;
  return Array.from({ length: length / step }, (_, i) => last - length + (i + 1) * step);
}

export interface Course {
  starts: number[]; // of the hours or days, in milliseconds
  units: bigint[]; // used in each
  total: bigint;
  requests: bigint; // that used more than 0 units
}

// courseOf adds up the records of a meter by hour or day. A record that was read twice, as open and as final, counts once.
export function courseOf(records: UsageRecord[], span: CourseSpan, now: number): Course {
  const starts = startsOf(span, now);
  const { step } = spans[span];
  const units = starts.map(() => 0n);
  let [total, requests] = [0n, 0n];
  for (const r of new Map(records.map((one) => [one.usage_id, one])).values()) {
    const i = Math.floor((Date.parse(r.period_start) - (starts[0] ?? 0)) / step);
    const before = units[i];
    if (before === undefined) continue;
    units[i] = before + BigInt(r.units);
    total += BigInt(r.units);
    requests += BigInt(r.requests);
  }
  return { starts, units, total, requests };
}

// A WindowCourse is what was used of a quota at the times of its window: null where they have not come.
export interface WindowCourse {
  times: number[]; // in milliseconds
  used: (number | null)[];
}

const shown = 30 * day; // of a quota that never resets
const hourly = 3 * day; // up to which a course has hours

// windowStart returns where the course of a quota begins, in milliseconds: with its window, or some time ago if that never ends.
export const windowStart = (u: Usage, now: number): number =>
  u.window_end ? Date.parse(u.window_start) : Math.max(Date.parse(u.window_start), Math.floor(now / day) * day - shown);

// windowCourse adds up the records since windowStart. It ends with what the usage has, whatever the records lack, and with the
// window's end. What a quota that never resets had used before is what the records leave of it.
export function windowCourse(records: UsageRecord[], u: Usage, now: number): WindowCourse {
  const start = windowStart(u, now);
  const end = u.window_end ? Date.parse(u.window_end) : now;
  const step = Math.min(now, end) - start > hourly ? day : hour;
  const last = Math.min(now, end);
  const steps = Math.max(1, Math.ceil((last - start) / step));
  const units = Array.from({ length: steps }, () => 0n);
  let sum = 0n;
  for (const r of new Map(records.map((one) => [one.usage_id, one])).values()) {
    const i = Math.floor((Date.parse(r.period_start) - start) / step);
    const before = units[i];
    if (before === undefined) continue;
    units[i] = before + BigInt(r.units);
    sum += BigInt(r.units);
  }
  const all = BigInt(u.used);
  let used = u.window_end || sum > all ? 0n : all - sum;
  const course: WindowCourse = { times: [start], used: [Number(used)] };
  units.forEach((n, i) => {
    used = used + n < all ? used + n : all;
    course.times.push(Math.min(start + (i + 1) * step, last));
    course.used.push(Number(i === steps - 1 ? all : used));
  });
  if (end > last) {
    course.times.push(end);
    course.used.push(null);
  }
  return course;
}
