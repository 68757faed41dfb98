import { expect, test } from 'vitest';
import { passedLast, type Threshold, windowKey } from './threshold';

const now = Date.parse('2026-11-29T12:00:00Z');
const event = (of: Partial<Threshold>, created_at = '2026-11-29T11:00:00Z') => ({
  created_at,
  data: {
    limit: 'per-month',
    plan: 'pro',
    meter: 'tokens',
    percent: 80,
    used: 80,
    count: 100,
    owner: 'acme',
    owner_id: 'own_a',
    key_id: null,
    window_start: '2026-11-01T00:00:00Z',
    window_end: '2026-12-01T00:00:00Z' as string | null,
    ...of,
  },
});

// Guarantee: of each window that has not ended, the highest threshold is shown, the newest window first; also of a quota that
// never resets, and after a change of the plan, since the count stays. It has the time at which it was passed. What is no threshold is left out.
test('the thresholds that were passed', () => {
  const shown = passedLast(
    [
      event({ owner_id: 'own_b', percent: 80 }),
      event({ percent: 100, plan: 'free' }, '2026-11-29T08:16:00Z'),
      event({ percent: 80 }),
      event({ owner_id: 'own_b', percent: 100 }, '2026-11-28T10:00:00Z'),
      event({ owner_id: 'own_c', limit: 'ever', window_start: '2020-01-01T00:00:00Z', window_end: null }),
      event({ owner_id: null, key_id: 'key_a', window_end: '2026-11-29T12:00:00Z' }),
      { created_at: '2026-11-29T11:00:00Z', data: { key_id: 'key_b' } },
    ],
    now,
  );
  expect(shown.map((t) => [t.owner_id, t.limit, t.percent, t.at])).toEqual([
    ['own_b', 'per-month', 100, '2026-11-28T10:00:00Z'],
    ['own_a', 'per-month', 100, '2026-11-29T08:16:00Z'],
    ['own_c', 'ever', 80, '2026-11-29T11:00:00Z'],
  ]);
});

// Guarantee: the windows that are shown have keys of their own, also if their parts would join to the same text.
test('the key of a window', () => {
  const key = (of: Partial<Threshold>) => windowKey({ ...event({}).data, ...of });
  expect(key({ percent: 100, plan: 'free' })).toBe(key({}));
  expect(
    new Set([key({}), key({ limit: 'a b', meter: 'c' }), key({ limit: 'a', meter: 'b c' }), key({ owner_id: null, key_id: 'own_a' })]).size,
  ).toBe(4);
});
