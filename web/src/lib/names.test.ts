import { expect, test } from 'vitest';
import { tellApart } from './names';

// Guarantee: two records of equal name are told apart, one that is listed twice is one, and an unknown one is its identifier.
test('names tell records apart', () => {
  const nameOf = tellApart([
    { id: 'key_1', name: 'app', mark: 'kg_a' },
    { id: 'key_2', name: 'app', mark: 'kg_b' },
    { id: 'key_3', name: 'batch', mark: 'kg_c' },
    { id: 'key_3', name: 'batch', mark: 'kg_c' },
  ]);
  expect(['key_1', 'key_2', 'key_3', 'key_4'].map(nameOf)).toEqual(['app (kg_a)', 'app (kg_b)', 'batch', 'key_4']);
});
