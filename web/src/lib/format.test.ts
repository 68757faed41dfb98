import { expect, test } from 'vitest';
import { parse, stringify } from '../api/json';
import { refusal } from '../api/session';
import { bytes, count, percent, size, wholeBytes, wholeNumber } from './format';
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

// Guarantee: a size has no rounding, and the unit with which it is the shortest.
test('sizes are exact', () => {
  expect([size(1), size(1000), size(1024), size(1536), size(1_234_567)]).toEqual([
    '1 byte',
    '1 kB',
    '1 KiB',
    '1,536 bytes',
    '1,234,567 bytes',
  ]);
  expect([size(10 * 1024 ** 3), size(10_000_000_000), size(1_500_000_000)]).toEqual(['10 GiB', '10 GB', '1,500 MB']);
  expect([size(2n ** 53n - 1n), size(2n ** 53n), size(0)]).toEqual(['9,007,199,254,740,991 bytes', '8,192 TiB', '0 bytes']);
});

// Guarantee: bytes beside a decimal size have decimal units, and all others binary ones.
test('bytes beside a size', () => {
  expect(bytes(2_500_000_000, 10_000_000_000)).toBe('2.5 GB');
  expect(bytes(999, 1000)).toBe('999 B');
  expect(bytes(1_000_000, 1000)).toBe('1.0 MB');
  expect(bytes(2_500_000_000, 1024)).toBe('2.3 GiB');
  expect(bytes(2n ** 53n, 0)).toBe('8192.0 TiB');
});

// Guarantee: numbers are read with what people put between digits, without loss; what is no number is left to the server.
test('numbers that were typed', () => {
  expect(wholeNumber(' 100,000 ')).toBe(100_000);
  expect(wholeNumber('9007199254740993')).toBe(9007199254740993n);
  expect([wholeNumber('lots'), wholeNumber('-1'), wholeNumber('1e5'), wholeNumber('')]).toEqual(['lots', '-1', '1e5', '']);
});

// Guarantee: bytes are read with and without a unit, without loss; what is no whole number of bytes, or could be read in two
// ways, is left to the server.
test('bytes that were typed', () => {
  expect(['10 GB', '500MiB', '1.5 kib', '2 kB', '1 b', '7 bytes', '1,500 MB', '1 000 kB', '0.000001 MB'].map(wholeBytes)).toEqual([
    10_000_000_000, 524_288_000, 1536, 2000, 1, 7, 1_500_000_000, 1_000_000, 1,
  ]);
  expect(['100,000', '1073741824', ' 5 '].map(wholeBytes)).toEqual([100_000, 1_073_741_824, 5]);
  expect(wholeBytes('8192 TiB')).toBe(2n ** 53n);
  for (const text of ['0.1 GiB', '1,5 GB', '10 G', '10 requests', '-1 MB', '1e3 MB', '1.5', 'GB', '1.000.000 B', 'lots', ''])
    expect(wholeBytes(text)).toBe(text);
  for (const n of [1, 999, 1000, 1024, 1536, 123_456_789, 2 ** 53 - 1, 10_000_000_000]) expect(wholeBytes(size(n))).toBe(n);
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
