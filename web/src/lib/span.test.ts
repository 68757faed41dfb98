import { expect, test } from 'vitest';
import { pointInTime } from './span';

// Guarantee: how long ago becomes a fixed time; all other text goes to the API as it is.
test('pointInTime', () => {
  const now = Date.parse('2026-03-01T12:00:00.9Z');
  expect(pointInTime('15m', now)).toBe('2026-03-01T11:45:00Z');
  expect(pointInTime('7d', now)).toBe('2026-02-22T12:00:00Z');
  expect(pointInTime('2026-03-01', now)).toBe('2026-03-01');
  expect(pointInTime('yesterday', now)).toBe('yesterday');
});
