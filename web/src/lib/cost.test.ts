import { expect, test } from 'vitest';
import type { Schemas } from '../api/client';
import { stringify } from '../api/json';
import { costErrors, costOf, costProblem, costRows, costText, costWords, metersOf, tokensOfOpenAI, unitsWords, unknownWords } from './cost';

type Cost = Schemas['Cost'];

// Guarantee: units are named by their meter, in the singular only where that is known.
test('units of meters in words', () => {
  expect(unitsWords('tokens', 1204)).toBe('1,204 tokens');
  expect(unitsWords('tokens', 1)).toBe('1 tokens');
  expect([unitsWords('requests', 1), unitsWords('requests', 20n)]).toEqual(['1 request', '20 requests']);
  expect(costWords({ cents: { units: 3 }, tokens: { units: 9_007_199_254_740_991 } })).toBe('3 cents, 9,007,199,254,740,991 tokens');
});

// Guarantee: what requests were charged is added up by meter, exactly beyond 2^53, and is nothing without costs.
test('units of a traffic report are added up', () => {
  expect(metersOf([{ meters: {} }])).toEqual([]);
  const huge = 9_007_199_254_740_993n as unknown as number; // as the API's JSON is read
  expect(metersOf([{ meters: { tokens: huge, cents: 1 } }, { meters: {} }, { meters: { tokens: 2 } }])).toEqual([
    ['cents', 1n],
    ['tokens', 9_007_199_254_740_995n],
  ]);
});

// Guarantee: each reason for an unknown cost is said in words, and one that was added later by its name.
test('why a cost is not known', () => {
  for (const reason of ['incomplete', 'encoding', 'too_long', 'invalid', 'not_a_number', 'negative', 'too_large', 'missing'])
    expect(unknownWords(reason), reason).toMatch(/^(the|a) .{10}/);
  expect(unknownWords('later')).toBe('later');
});

// Guarantee: a cost of a route is said in full: where the figure is, what is reserved, the most, and what an
// unknown one costs; a price is never unknown.
test('a cost of a route in words', () => {
  const price: Cost = { meter: 'requests', from: { request: 20 }, reserve: 20, max: 20 };
  const rest = (units: string) => [
    ['Reserve', `${units}, taken before forwarding`],
    ['At most', units],
  ];
  expect(costRows(price)).toEqual([['Each request', '20 requests'], ...rest('20 requests')]);
  const header: Cost = { meter: 'cents', from: { header: 'X-Cost', expose: true }, reserve: 5, max: 5, unknown: 'reserve' };
  expect(costRows(header)).toEqual([
    ['From', 'the response header X-Cost, which is passed on'],
    ...rest('5 cents'),
    ['If unknown', 'what was reserved'],
  ]);
  const json: Cost = {
    meter: 'tokens',
    from: { json: { 'usage.in': 1, 'usage.cached?': -0.5 }, by: 'model', prices: { large: { 'usage.in': 15 } } },
    reserve: 7,
    max: 7,
    unknown: { bytes_out: 0.25 },
  };
  expect(costRows(json)).toEqual([
    ['From', 'the JSON of the response: usage.in × 1 + usage.cached? × -0.5'],
    ['If model is large', 'usage.in × 15'],
    ...rest('7 tokens'),
    ['If unknown', '0.25 for each byte of the body of the response'],
  ]);
});

// Guarantee: costs that are edited and not changed are the same costs; an empty text is none; integers stay exact, so that
// the server can say that they are too large; a text that is not JSON is named, and sends nothing.
test('costs are edited as JSON', () => {
  expect(costText(null)).toBe('');
  expect(costText([])).toBe('');
  expect(costOf(costText(tokensOfOpenAI))).toEqual(tokensOfOpenAI);
  expect([costOf(''), costOf(' \n')]).toEqual([null, null]);
  expect(stringify(costOf('[{"max": 9007199254740993}]'))).toBe('[{"max":9007199254740993}]');
  expect(costProblem('[')).toMatch(/^This is not valid JSON: /);
  expect([costProblem(''), costProblem('[]')]).toEqual([undefined, undefined]);
});

// Guarantee: what the server says of costs stands with the field that it is about, each in its line.
test('errors of costs name their fields', () => {
  expect(
    costErrors([
      { field: 'cost[0].max', message: 'is required with header and json' },
      { field: 'cost', message: 'must have at most 4 costs' },
    ]),
  ).toBe('cost[0].max is required with header and json\ncost must have at most 4 costs');
  expect(costErrors([])).toBe('');
});
