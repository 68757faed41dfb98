import { describe, expect, test } from 'vitest';
import { calendarBody, calendarChanges, calendarFlags, calendarText, calendarWords } from './calendar';
import { count } from './format';
import {
  isUsedUp,
  leftWords,
  percentages,
  projection,
  projectionWords,
  quotaNotes,
  quotaParts,
  refusedQuota,
  shareWords,
  spellQuota,
  type Usage,
  unitsIn,
  wholeOf,
} from './quota';

const usage = (of: Partial<Usage> = {}): Usage => ({
  limit: 'per-month',
  plan: 'pro',
  meter: 'requests',
  per: 'owner',
  count: 1000,
  grants: 0,
  used: 300,
  reserved: 0,
  remaining: 700,
  window_start: '2026-11-01T00:00:00Z',
  window_end: '2026-12-01T00:00:00Z',
  overage: 'refuse',
  ...of,
});
const after = (days: number) => Date.UTC(2026, 10, 1) + days * 86_400_000;

test('a quota in words', () => {
  expect(spellQuota('100000/month')).toBe('100,000 a month');
  expect(spellQuota('9007199254740991/total')).toBe('9,007,199,254,740,991 in total');
  expect(quotaParts('5/day')).toEqual({ most: '5', unit: 'day' });
  expect(refusedQuota(1, '1/day', 'requests')).toBe('1 request a day');
  expect(refusedQuota(1024, '1024/day', 'bytes_in')).toBe('1 KiB of requests a day');
  expect(spellQuota('10737418240/month', 'bytes_out')).toBe('10 GiB of responses a month');
  expect(quotaNotes({ overage: 'refuse', warn_at: [80, 100] })).toEqual(['warns at 80\u00a0%, 100\u00a0%']);
  expect(quotaNotes({ overage: 'allow', warn_at: [] })).toEqual(['more is allowed']);
});

test('percentages that were typed', () => {
  expect(percentages('50 %, 80;100%')).toEqual([50, 80, 100]);
  expect([percentages(' '), percentages('80, all')]).toEqual([[], [80, 'all']]);
});

// Guarantee: percentages are of the count with what was granted, a quota with something left is never shown as used up, and
// integers beyond 2^53 stay exact.
test('what was used and what is left', () => {
  expect(shareWords(usage({ count: 900, grants: 100 }))).toBe('30 %');
  expect(shareWords(usage({ used: 999 }))).toBe('> 99 %');
  expect([isUsedUp(usage({ used: 999 })), isUsedUp(usage({ used: 1000 }))]).toEqual([false, true]);
  expect(leftWords(usage({ remaining: 690, reserved: 10 }))).toBe('690 left, and 10 reserved ahead');
  expect(leftWords(usage({ used: 1250, remaining: 0, overage: 'allow' }))).toBe('250 beyond the quota');
  expect(leftWords(usage({ meter: 'tokens', remaining: 690 }))).toBe('690 left');
  expect(wholeOf(usage({ count: 9007199254740991, grants: 9007199254740991 }))).toBe(18014398509481982n);
});

// Guarantee: bytes of a quota have units of the kind that its count has, decimal or binary, also after a grant of the other
// kind; and each digit can be shown as well.
test('a quota of bytes', () => {
  const gb = usage({ meter: 'bytes_out', count: 10_000_000_000, used: 2_500_000_000, remaining: 7_400_000_000, reserved: 100_000_000 });
  expect(leftWords(gb)).toBe('7.4 GB left, and 100.0 MB reserved ahead');
  expect(leftWords(gb, count)).toBe('7,400,000,000 left, and 100,000,000 reserved ahead');
  expect(unitsIn({ ...gb, grants: 1024 })(gb.used)).toBe('2.5 GB');
  const gib = usage({ meter: 'bytes_in', count: 10 * 1024 ** 3, used: 12 * 1024 ** 3, remaining: 0 });
  expect(leftWords(gib)).toBe('2.0 GiB beyond the quota');
  expect([shareWords(gib), isUsedUp(gib)]).toEqual(['120 %', true]);
  expect(projectionWords({ ...gib, used: 6 * 1024 ** 3 }, after(15))).toMatch(/^at this pace used up on (25|26) Nov$/);
});

describe('the projection', () => {
  // Guarantee: it is the share at the window's end at the pace of the window until now, or, of a quota that refuses, when
  // all is used.
  test('goes on at the pace until now', () => {
    expect(projection(usage(), after(15))).toEqual({ share: 0.6 });
    expect(projection(usage({ used: 800 }), after(16))).toEqual({ usedUp: after(20) });
    expect(projection(usage({ used: 800, grants: 1000 }), after(15))).toEqual({ share: 0.8 });
    expect(projection(usage({ used: 1500, overage: 'allow' }), after(15))).toEqual({ share: 3 });
  });

  test('says nothing where nothing can be said', () => {
    for (const [of, days] of [
      [{ used: 0 }, 15],
      [{}, 0.1],
      [{}, -1],
      [{}, 31],
      [{ used: 1000 }, 15],
      [{ window_start: '1970-01-01T00:00:00Z', window_end: null }, 15],
    ] as const) {
      expect(projection(usage(of), after(days))).toBeNull();
      expect(projectionWords(usage(of), after(days))).toBe('');
    }
  });

  test('in words', () => {
    expect(projectionWords(usage(), after(15))).toBe('at this pace 60 % at the end');
    expect(projectionWords(usage({ used: 1, count: 10_000_000 }), after(15))).toBe('at this pace < 0.1 % at the end');
    expect(projectionWords(usage({ used: 1500, overage: 'allow' }), after(15))).toBe('at this pace 300 % at the end');
    expect(projectionWords(usage({ used: 800 }), after(16))).toMatch(/^at this pace used up on (20|21) Nov$/);
    expect(projectionWords(usage({ used: 970 }), after(29))).toMatch(/^at this pace used up on (29|30) Nov, \d\d:\d\d$/);
  });
});

// Guarantee: what of a calendar is not set is not sent; what was removed is sent as null.
test('a calendar', () => {
  const berlin = calendarText({ time_zone: 'Europe/Berlin', anchor_day: 22 });
  expect(calendarWords(berlin)).toBe('Europe/Berlin, months from the 22nd');
  expect(['1', '3', '11', '15'].map((anchor_day) => calendarWords({ time_zone: '', anchor_day }))).toEqual([
    'months from the 1st',
    'months from the 3rd',
    'months from the 11th',
    'months from the 15th',
  ]);
  expect(calendarBody(berlin)).toEqual({ time_zone: 'Europe/Berlin', anchor_day: 22 });
  expect(calendarBody(calendarText({ time_zone: null, anchor_day: null }))).toEqual({});
  expect(calendarChanges({ anchor_day: '' })).toEqual({ anchor_day: null });
  expect(calendarFlags({ time_zone: null, anchor_day: null })).toEqual(["--time-zone ''", '--anchor-day 0']);
  expect(calendarFlags(calendarBody(berlin))).toEqual(['--time-zone Europe/Berlin', '--anchor-day 22']);
});
