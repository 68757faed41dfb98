import { expect, test } from 'vitest';
import { flagsOf, type SplitEntry, splitOf, textOf, wordsOf } from './split';

const plain = { sticky: true, fallback: false, weight: null, when: null };
const split: SplitEntry[] = [
  { ...plain, upstream: 'beta', when: { header: { 'X-Beta': 'a=1,b' } } },
  { ...plain, upstream: 'next', when: { key: ['key_1', 'key_2'] }, fallback: true },
  { ...plain, upstream: 'next', when: { owner: ['customer-42'] } },
  { ...plain, upstream: 'next', weight: 0.25, sticky: false, fallback: true },
];
const text = 'beta:header:X-Beta=a=1,b\nnext:key:key_1,key_2,fallback\nnext:owner:customer-42\nnext=0.25%,random,fallback';

test('a split is written in lines, and sent as it was', () => {
  expect(textOf(split)).toBe(text);
  expect(splitOf(`\n${text}\n`)).toEqual([
    { upstream: 'beta', when: { header: { 'X-Beta': 'a=1,b' } } },
    { upstream: 'next', when: { key: ['key_1', 'key_2'] }, fallback: true },
    { upstream: 'next', when: { owner: ['customer-42'] } },
    { upstream: 'next', weight: 0.25, sticky: false, fallback: true },
  ]);
});

test('what is no entry is sent, so that the server names it', () => {
  expect(splitOf('next\nnext=many\nnext:header:X')).toEqual([
    { upstream: 'next' },
    { upstream: 'next', weight: 'many' },
    { upstream: 'next', when: { header: { X: '' } } },
  ]);
});

test('the flags of the command line', () => {
  expect(flagsOf('next=5%\nnext:header:X-Beta=a b')).toEqual(['--split next=5%', "--split 'next:header:X-Beta=a b'"]);
  expect(flagsOf(' ')).toEqual(["--split ''"]);
});

test('a split says who gets which side', () => {
  expect(wordsOf(splitOf(text), 'default')).toEqual([
    'Requests with the header X-Beta: a=1,b go to beta.',
    'Requests with one of the keys key_1, key_2, or others of their rotations go to next, or elsewhere while none of its targets takes part.',
    'Requests with a key of customer-42 go to next.',
    '0.25 % of all other requests, whoever makes them, go to next, or elsewhere while none of its targets takes part.',
    'Everything else goes to default.',
  ]);
  expect(wordsOf(splitOf('next=5%'), 'the upstream of its route')).toEqual([
    '5 % of callers, who stay there, go to next.',
    'Everything else goes to the upstream of its route.',
  ]);
});
