import { describe, expect, it } from 'vitest';
import { hashed, most, readKeys } from './importkeys';

const key = 'sk_live_51HxAbCdEfGhIjKlMnOpQr';

describe('an import of keys', () => {
  it('is read from JSON, and what is wrong with it is said', () => {
    expect(readKeys('{"keys": [{"name": "a"}]}')).toEqual([{ name: 'a' }]);
    for (const [text, problem] of [
      ['{', 'not JSON'],
      ['{}', 'must have the form'],
      ['null', 'must have the form'],
      ['{"keys": []}', 'must have the form'],
      [JSON.stringify({ keys: Array.from({ length: most + 1 }, () => ({})) }), '1001 keys'],
    ] as const)
      expect(() => readKeys(text)).toThrow(problem);
  });

  it('sends hashes in place of keys', async () => {
    expect(await hashed({ name: 'a', scope: 'read', key: 'abcdefghijklmnopqrstuvwxyz' })).toEqual({
      name: 'a',
      scope: 'read',
      key_prefix: 'abcdef',
      sha256: '71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73',
    });
    expect((await hashed({ name: 'a', scope: 'read', key, key_prefix: 'sk_live_' })).key_prefix).toBe('sk_live_');
  });

  it('leaves what the server refuses as it is, so that the server says why', async () => {
    for (const fields of [
      { key: 'short' },
      { key: `${key} ` },
      { key: `kg_${'a'.repeat(36)}` },
      { key, key_prefix: 'pk_' },
      { key, key_prefix: key.slice(0, 15) },
      { key, sha256: 'x' },
      { sha256: 'x' },
      {},
    ]) {
      const request = { name: 'a', scope: 'read', ...fields };
      expect(await hashed(request)).toBe(request);
    }
  });
});
