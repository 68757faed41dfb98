import { expect, test } from 'vitest';
import { withoutSecret } from './secret';

// Guarantee: a key that is pasted into a search is cut to its prefix, wherever it is in the text; nothing else is changed.
test('withoutSecret', () => {
  const rest = 'C4A8mzdo9QaLzHNEuCOJnXzQdKh1OdTaH';
  expect(withoutSecret(`kg_U1p${rest}`)).toBe('kg_U1pC4A');
  expect(withoutSecret(` kga_U1p${rest} `)).toBe(' kga_U1pC4A ');
  expect(withoutSecret(`key_prefix:kg_U1p${rest}`)).toBe('key_prefix:kg_U1pC4A');
  for (const same of ['', 'kg_U1pC4A', 'key_01m84khkb1f468eed26qakaaaa', 'acme', 'owner:kg_U1p']) expect(withoutSecret(same)).toBe(same);
});
