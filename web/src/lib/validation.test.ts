import { expect, test } from 'vitest';
import { placeWords, sumWords } from './validation';

test('the sum says what enforce would mean, or has meant', () => {
  const sum = { mode: 'report', requests: 48201, refused: 12, keys: 3 } as const;
  expect(sumWords(sum)).toBe('12 of 48,201 requests of the last 24 hours, with 3 keys, would be refused.');
  expect(sumWords({ ...sum, mode: 'enforce', keys: 1 })).toBe(
    '12 of 48,201 requests of the last 24 hours, with 1 key, did not meet the document.',
  );
  expect(sumWords({ ...sum, refused: 0, keys: 0 })).toBe('0 of 48,201 requests of the last 24 hours would be refused.');
  expect(sumWords({ ...sum, requests: 0 })).toBe('No request of the last 24 hours was held against the document.');
});

test('places are words', () => {
  expect(placeWords('content_type')).toBe('content type');
  expect(placeWords('body')).toBe('body');
});
