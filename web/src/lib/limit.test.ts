import { expect, test } from 'vitest';
import { capacity, doubled, noLimit, spellLimit } from './limit';

// Guarantee: a limit is said in words, and twice the limit is exact for every count.
test('a limit in words, and twice as much', () => {
  expect(spellLimit({ ...noLimit, sustained: '5/min' })).toBe('5 per minute');
  expect(spellLimit({ sustained: '1000/s', burst: '2000/s', daily: '50000/day' })).toBe('1,000 per second, 2,000 at once, 50,000 per day');
  expect(capacity({ ...noLimit, sustained: '5/min' })).toBe(5);
  expect(capacity({ ...noLimit, sustained: '5/min', burst: '9/min' })).toBe(9);
  expect(doubled({ sustained: '5/min', burst: '', daily: '10/day' }, false)).toEqual({ sustained: '10/min', burst: '', daily: '10/day' });
  expect(doubled({ sustained: '5/min', burst: '', daily: '9007199254740993/day' }, true).daily).toBe('18014398509481986/day');
});
