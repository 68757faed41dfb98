import { parse, stringify } from '../api/json';
import type { Schemas } from '../api/client';
import { unitsOf } from './usage';
import type { Row } from './traffic';

type Cost = Schemas['Cost'];

// Why a cost is not known. The API may add further reasons.
const reasons: Record<string, string> = {
  incomplete: 'the exchange did not complete: the client hung up, the upstream failed, or the request was cut off',
  encoding: 'the response has a Content-Encoding other than gzip, or its gzip is damaged',
  too_long: 'a value is longer than 1 KiB, or the body than 16 MiB',
  invalid: 'the body is not valid JSON, or ends within a value',
  not_a_number: 'the field or header is not a number',
  negative: 'the field or header is negative',
  too_large: 'the number is above 9,007,199,254,740,991',
  missing: 'the response does not have the field or header, or its Content-Type is not one that is read',
};

// unknownWords says why a cost is not known.
export const unknownWords = (reason: string): string => reasons[reason] ?? reason;

// unitsWords says units of the meter of a cost: "1,204 tokens", "1 request".
export const unitsWords = (meter: string, units: number | bigint): string =>
  `${unitsOf(meter, units)} ${meter === 'requests' && Number(units) === 1 ? 'request' : meter}`;

// costWords says in a few words what a request was charged, of each meter: "1,204 tokens, 20 cents".
export const costWords = (cost: Record<string, { units: number }>): string =>
  Object.entries(cost)
    .map(([meter, c]) => unitsWords(meter, c.units))
    .join(', ');

// metersOf adds up what requests were charged, by meter.
export function metersOf(rows: Pick<Row, 'meters'>[]): [meter: string, units: bigint][] {
  const sums = new Map<string, bigint>();
  for (const r of rows) for (const [meter, units] of Object.entries(r.meters)) sums.set(meter, (sums.get(meter) ?? 0n) + BigInt(units));
  return [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1));
}

// sumWords says fields of a response and what one of each costs: "usage.prompt_tokens × 1 + usage.completion_tokens × 4".
const sumWords = (fields: Record<string, number>): string =>
  Object.entries(fields)
    .map(([field, weight]) => `${field} × ${weight}`)
    .join(' + ');

const bodies: Record<string, string> = { bytes_in: 'the request', bytes_out: 'the response' };

function unknownText({ unknown }: Cost): string {
  if (unknown === undefined) return 'the most';
  if (typeof unknown === 'string') return 'what was reserved';
  return Object.entries(unknown)
    .map(([meter, weight]) => `${weight} for each byte of the body of ${bodies[meter] ?? meter}`)
    .join(', ');
}

function figureRows({ meter, from }: Cost): [string, string][] {
  if (from.request !== undefined) return [['Each request', unitsWords(meter, from.request)]];
  if (from.header !== undefined) return [['From', `the response header ${from.header}, which is ${from.expose ? 'passed on' : 'removed'}`]];
  return [
    ['From', `the JSON of the response: ${sumWords(from.json ?? {})}`],
    ...Object.entries(from.prices ?? {}).map(([value, fields]): [string, string] => [`If ${from.by} is ${value}`, sumWords(fields)]),
  ];
}

// costRows says a cost of a route: where the figure is found, and what is charged before it is known, at most, and if it is
// not.
export const costRows = (c: Cost): [name: string, value: string][] => [
  ...figureRows(c),
  ['Reserve', `${unitsWords(c.meter, c.reserve)}, taken before forwarding`],
  ['At most', unitsWords(c.meter, c.max)],
  ...(c.from.request === undefined ? [['If unknown', unknownText(c)] as [string, string]] : []), // a price is always known
];

// costText returns the costs of a route as one edits them; "" for none.
export const costText = (costs: Cost[] | null): string => (costs?.length ? stringify(costs, 2) : '');

// costOf returns what a call takes for costs that were typed: null for none. It throws a SyntaxError if they are not JSON.
export const costOf = (text: string): unknown => (text.trim() ? parse(text) : null);

// costProblem says why costs that were typed are not JSON; undefined if they are.
export function costProblem(text: string): string | undefined {
  try {
    costOf(text);
    return undefined;
  } catch (e) {
    return `This is not valid JSON: ${(e as Error).message}`;
  }
}

// costErrors says what the server found in costs, a line for each field: "cost[0].max must be at least reserve".
export const costErrors = (fields: { field: string; message: string }[]): string =>
  fields.map(({ field, message }) => `${field} ${message}`).join('\n');

// tokensOfOpenAI is the cost of a model with the API of OpenAI. An embedding has no completion.
export const tokensOfOpenAI: Cost[] = [
  { meter: 'tokens', from: { json: { 'usage.prompt_tokens': 1, 'usage.completion_tokens?': 1 } }, reserve: 2000, max: 16000 },
];
