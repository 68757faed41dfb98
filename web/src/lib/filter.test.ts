import { expect, test } from 'vitest';
import { beginsFilter, type Filter, parseFilter, suggest, whyRefused } from './filter';

const filters: Filter[] = [
  { name: 'owner', label: 'Owner' },
  {
    name: 'gateway_id',
    label: 'Gateway',
    values: [
      { value: 'gw_1', label: 'orders' },
      { value: 'gw_2', label: 'Two words' },
    ],
    other: /^gw_\w+$/,
  },
  { name: 'state', label: 'State', values: [{ value: 'retry scheduled', label: 'Waits' }] },
];

// Guarantee: a filter is read by its name or label, and a value by itself or its label; other text is none.
test.each([
  ['owner:acme', { name: 'owner', value: 'acme' }],
  [' owner:acme ', { name: 'owner', value: 'acme' }],
  ['Owner:acme', { name: 'owner', value: 'acme' }],
  ['owner:"acme inc"', { name: 'owner', value: 'acme inc' }],
  ['owner:a:b', { name: 'owner', value: 'a:b' }],
  ['gateway:ORDERS', { name: 'gateway_id', value: 'gw_1' }],
  ['gateway_id:gw_2', { name: 'gateway_id', value: 'gw_2' }],
  ['gateway:"two words"', { name: 'gateway_id', value: 'gw_2' }],
  ['gateway:gw_9', { name: 'gateway_id', value: 'gw_9' }],
  ['gateway:gone', null],
  ['state:active', null],
  ['owner:', null],
  ['owner:""', null],
  ['owner:acme inc', null],
  ['owner:"acme', null],
  ['tag:x', null],
  ['acme', null],
])('%s is read', (typed, filter) => expect(parseFilter(filters, typed)).toEqual(filter));

// Guarantee: what begins as a filter is not searched for before it is complete.
test('the begin of a filter', () => {
  expect(beginsFilter(filters, 'owner:')).toBe(true);
  expect(beginsFilter(filters, 'owner')).toBe(false);
  expect(beginsFilter(filters, 'http://x')).toBe(false);
});

// Guarantee: every suggestion that is complete is read as a filter, and a filter that is set is not suggested.
test('suggestions', () => {
  const all = suggest(filters, {}, '');
  expect(all.map((s) => s.text)).toEqual(['owner:', 'gateway_id:gw_1', 'gateway_id:gw_2', 'state:"retry scheduled"']);
  for (const s of all) expect(parseFilter(filters, s.text) !== null).toBe(s.done);
  expect(suggest(filters, { gateway_id: 'gw_1' }, '').map((s) => s.label)).toEqual(['Owner', 'State: Waits']);
  expect(suggest(filters, {}, 'Two').map((s) => s.text)).toEqual(['gateway_id:gw_2']);
  expect(suggest(filters, {}, 'gateway:o').map((s) => s.text)).toEqual(['gateway_id:gw_1']);
  expect(suggest(filters, {}, 'own').map((s) => s.text)).toEqual(['owner:']);
  expect(suggest(filters, {}, 'owner:a')).toEqual([]);
});

// Guarantee: a refusal says what to type instead.
test('a refused filter', () => {
  expect(whyRefused(filters, 'tag:x')).toBe('The filters here are owner, gateway, state. Type one as name:value.');
  expect(whyRefused(filters, 'state:gone')).toBe('State cannot be “gone”.');
  expect(whyRefused(filters, 'owner:')).toBe('Type a value after owner:');
});
