import { expect, test } from 'vitest';
import { parse, stringify } from '../api/json';
import { refusal } from '../api/session';
import { bytes, count, percent } from './format';
import { quote } from './shell';
import { relative } from './time';

test('integers beyond 2^53 stay exact', () => {
  const text =
    '{"bytes_out":9007199254740993,"share":0.5,"n":-9223372036854775808,"name":"no 12345678901234567890 \\"9007199254740993\\"","e":1e300}';
  const value = parse(text) as Record<string, unknown>;
  expect(value.bytes_out).toBe(9007199254740993n);
  expect(stringify(value)).toBe(text.replace('1e300', '1e+300'));
  expect(value.name).toBe('no 12345678901234567890 "9007199254740993"');
  expect(count(value.bytes_out as bigint)).toBe('9,007,199,254,740,993');
});

test('numbers have their units', () => {
  expect(bytes(1023)).toBe('1023 B');
  expect(bytes(1536)).toBe('1.5 KiB');
  expect(percent(1, 100_000)).toBe('< 0.1 %');
  expect(percent(0, 0)).toBe('0 %');
});

test('relative times', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  expect(relative(now - 90_000, now)).toBe('1 min ago');
  expect(relative(now + 3 * 86_400_000, now)).toBe('in 3 d');
  expect(relative(now - 1_000, now)).toBe('now');
});

test('a word of a shell is quoted', () => {
  expect(quote("it's $HOME")).toBe(`'it'\\''s $HOME'`);
  expect(quote('read:orders')).toBe('read:orders');
});

test('a scope forbids what it does not have', () => {
  expect(refusal('admin', 'admin', 'keys')).toBeNull();
  expect(refusal('read write:keys', 'write', 'keys/key_1')).toBeNull();
  expect(refusal('read write:keys', 'write', 'keysets')).toContain('write');
  expect(refusal('read', 'admin', 'gateways')).toContain('read');
});
