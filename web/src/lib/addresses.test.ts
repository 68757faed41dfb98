import { expect, test } from 'vitest';
import { addressesOf, addressWords, listsOf } from './addresses';

test('lists come back as they were', () => {
  for (const lists of [
    { allow_ips: ['10.0.0.0/8', '2001:db8::/32'], deny_ips: ['10.1.0.0/16'] },
    { allow_ips: [], deny_ips: [] },
  ]) {
    expect(listsOf(addressesOf(lists))).toEqual(lists);
  }
  expect(listsOf(addressesOf({ allow_ips: null, deny_ips: null }))).toEqual({ allow_ips: [], deny_ips: [] });
});

test('who may use a route is said in words', () => {
  expect(addressWords({ allow_ips: null, deny_ips: null })).toMatch(/^All addresses that the gateway and the key allow/);
  expect(addressWords({ allow_ips: ['10.0.0.0/8'], deny_ips: null })).toBe('Only addresses of 10.0.0.0/8 may use it.');
  expect(addressWords({ allow_ips: null, deny_ips: ['10.0.0.0/8'] })).toBe('All addresses may use it but those of 10.0.0.0/8.');
  expect(addressWords({ allow_ips: ['10.0.0.0/8'], deny_ips: ['10.1.0.0/16'] })).toMatch(/none of 10\.1\.0\.0\/16: the longest/);
});
