import { expect, test } from 'vitest';
import { momentOf, tick } from './time';

// Guarantee: no two ticks of an axis read alike: those that are less than a minute apart have seconds, and days have no time.
test('the ticks of an axis of time', () => {
  const noon = new Date(2026, 10, 29, 13, 15).getTime() / 1000;
  const ticks = (step: number, from = noon) => [0, 1, 2].map((i) => tick(from + i * step, step));
  expect(ticks(30)).toEqual(['13:15:00', '13:15:30', '13:16:00']);
  expect(ticks(60)).toEqual(['13:15', '13:16', '13:17']);
  expect(ticks(3600)).toEqual(['13:15', '14:15', '15:15']);
  const midnight = new Date(2026, 10, 29).getTime() / 1000;
  expect(ticks(30, midnight)).toEqual(['29 Nov', '00:00:30', '00:01:00']);
  expect(ticks(86_400, midnight)).toEqual(['29 Nov', '30 Nov', '1 Dec']);
});

// Guarantee: a time of another day has its day.
test('a moment', () => {
  const at = new Date(2026, 10, 29, 13, 15, 7);
  expect(momentOf(at.toISOString(), at.getTime() + 3_600_000)).toBe('13:15:07');
  expect(momentOf(at.toISOString(), at.getTime() + 86_400_000)).toBe('29 Nov, 13:15');
});
