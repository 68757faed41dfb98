import { describe, expect, it } from 'vitest';
import { ApiError, type Schemas } from '../api/client';
import { hashedKeys, linesOf, most, problemLines, readKeys } from './importkeys';

const key = 'sk_live_51HxAbCdEfGhIjKlMnOpQr';
const digest = '71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73';
const keys = (...list: unknown[]) => list as Schemas['ImportKeyRequest'][];

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
    const rest = { name: 'a', scope: 'read' };
    expect(
      await hashedKeys(
        keys(
          { ...rest, key: 'abcdefghijklmnopqrstuvwxyz' },
          { ...rest, key, key_prefix: 'sk_live_' },
          { ...rest, sha256: digest, owner: 'acme' },
          { key_prefix: 'sk_' }, // the server says what is missing
        ),
      ),
    ).toMatchObject([
      { ...rest, key_prefix: 'abcdef', sha256: digest },
      { ...rest, key_prefix: 'sk_live_', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
      { ...rest, sha256: digest, owner: 'acme' },
      { key_prefix: 'sk_' },
    ]);
  });

  // Guarantee: nothing that may be the string of a key leaves the browser. What is wrong is said with its field, without the string.
  it('sends nothing if a string cannot be hashed', async () => {
    for (const [wrong, field] of [
      [{ key: 'short' }, 'key'],
      [{ key: 'x'.repeat(21) }, 'key'],
      [{ key: 'x'.repeat(513) }, 'key'],
      [{ key: `${key} ` }, 'key'],
      [{ key: `kg_${'a'.repeat(36)}` }, 'key'],
      [{ key: 12_345_678_901_234 }, 'key'],
      [{ key, sha256: digest }, 'key'],
      [{ key, key_prefix: 'pk_' }, 'key_prefix'],
      [{ key, key_prefix: key.slice(0, 15) }, 'key_prefix'],
      [{ sha256: digest, key_prefix: key }, 'key_prefix'],
      [{ sha256: key }, 'sha256'],
      [{ secret: key }, 'secret'],
      [{ constructor: key }, 'constructor'],
    ] as const) {
      const failed = await hashedKeys(keys({ key }, { name: 'a', ...wrong })).catch((e: unknown) => e);
      expect(failed, JSON.stringify(wrong)).toBeInstanceOf(ApiError);
      expect((failed as ApiError).fields).toEqual([{ field: `keys[1].${field}`, message: expect.not.stringContaining(key) }]);
    }
    for (const wrong of [key, null, [key]])
      await expect(hashedKeys(keys(wrong))).rejects.toMatchObject({ fields: [{ field: 'keys[0]', message: 'must be an object' }] });
  });

  it('has problems at their lines', () => {
    const text =
      '{\n  "note": {"keys": [1, 2]},\n  "keys": [{"name": "a]}\\"", "metadata": {"a": [{}]}},\n    {\n      "name": "b"}, 7\n  ]\n}';
    expect(linesOf(text)).toEqual([3, 4, 5]);
    expect(
      problemLines(
        [
          { field: 'keys[1].scope', message: 'is required' },
          { field: 'keys[0]', message: 'must be an object' },
          { field: 'keys', message: 'is too long' },
        ],
        text,
      ),
    ).toBe('Line 4, scope: is required\nLine 3: must be an object\nkeys: is too long');
    const many = Array.from({ length: 25 }, (_, i) => ({ field: `keys[${i}].name`, message: 'is required' }));
    expect(problemLines(many, '')).toMatch(/\nand 5 more$/);
  });
});
