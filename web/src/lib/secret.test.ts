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

// Guarantee: a token that is pasted into a search is taken out, whole or without its signature; nothing else is changed.
test('withoutSecret of tokens', () => {
  const part = (text: string) => btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  for (const header of ['{"alg":"RS256"}', '{ "alg":"RS256"}', '{\n"alg":"RS256"}'])
    for (const signature of ['c2ln-_', '']) {
      const token = `${part(header)}.${part('{"sub":"ada","aud":"api"}')}.${signature}`;
      expect(withoutSecret(token)).toBe('');
      expect(withoutSecret(`Bearer ${token} `)).toBe('Bearer  ');
      expect(withoutSecret(`name:${token}`)).toBe('name:');
    }
  for (const same of ['eyewear.example.com', 'https://login.example.com/', 'ewald.mueller', 'a.b.c'])
    expect(withoutSecret(same)).toBe(same);
});
