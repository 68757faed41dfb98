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
