import { expect, test } from 'vitest';
import { ruleBody, ruleFlags, rulesOf, ruleWords } from './headers';

test('rules of a route come back as they were', () => {
  const all: { set: Record<string, string>; remove: string[] }[] = [
    { set: { 'X-A': 'b: c', 'X-Owner': '${owner}' }, remove: ['X-B'] },
    { set: {}, remove: ['X-B', 'X-C'] },
    { set: { 'X-A': 'b' }, remove: [] },
  ];
  for (const rules of all) {
    expect({ set: {}, remove: [], ...ruleBody(rulesOf(rules)) }).toEqual(rules);
  }
  expect(ruleBody(rulesOf(null))).toBeNull();
});

test('flags do the same', () => {
  expect(ruleFlags('request-header', { set: 'X-A: b c', remove: 'X-B' })).toEqual([
    "--request-header 'X-A=b c'",
    '--remove-request-header X-B',
  ]);
  expect(ruleFlags('response-header', { set: '', remove: '' })).toEqual(["--response-header ''"]);
});

test('rules are said in words', () => {
  expect(ruleWords('requests', null)).toBe('');
  expect(ruleWords('requests', { set: { 'X-A': 'b' }, remove: ['X-B', 'X-C'] })).toBe(
    'X-A is set on requests; X-B, X-C are removed from requests.',
  );
});
