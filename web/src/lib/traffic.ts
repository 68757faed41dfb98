import type { Schemas } from '../api/client';
import { serverNow } from '../api/client';
import { type Range, ranges } from './time';

export type Row = Schemas['TrafficRow'];

export type Interval = '1m' | '1h';

// Each range has an interval of the report that gives at most some 170 points.
export const intervalOf: Record<Range, Interval> = { '15m': '1m', '1h': '1m', '24h': '1h', '7d': '1h' };

// How often a range is read again, in milliseconds: the longer, the less it changes.
export const refreshOf: Record<Range, number> = { '15m': 5_000, '1h': 10_000, '24h': 60_000, '7d': 60_000 };

// isRange reports whether text names a range.
export const isRange = (text: string | undefined): text is Range => text !== undefined && text in ranges;

// sinceOf returns the begin of a range as the API takes it, at a whole minute or hour.
export function sinceOf(range: Range, now = serverNow()): string {
  const step = intervalOf[range] === '1m' ? 60_000 : 3_600_000;
  return new Date(Math.floor((now - ranges[range] * 1000) / step) * step).toISOString();
}

// sum adds one number of all rows.
export function sum(rows: Row[], of: (r: Row) => number): number {
  return rows.reduce((total, r) => total + Number(of(r)), 0);
}

export const refusals = (r: Row): number => Number(r.limited) + Number(r.unauthorized) + Number(r.forbidden);

// firstRequest returns the first row with a request.
export const firstRequest = (rows: Row[] | undefined): Row | undefined => rows?.find((r) => Number(r.requests) > 0);

const least = 5; // rows that a chart has

// begun leaves out the rows before the first request, but keeps enough for a chart. Without requests all are left.
export function begun(rows: Row[]): Row[] {
  const first = rows.findIndex((r) => Number(r.requests) > 0);
  return first < 0 ? rows : rows.slice(Math.max(0, Math.min(first, rows.length - least)));
}

// ended leaves out a minute that has not ended, in which a line would fall, unless all requests are in it.
export function ended(rows: Row[], interval: Interval, now = serverNow()): Row[] {
  const last = rows.at(-1);
  const before = rows.slice(0, -1);
  return interval === '1m' && last && startOf(last) + 60 > now / 1000 && firstRequest(before) ? before : rows;
}

// rate says how many there were of something in a time: "0.43 per second", "12 per minute".
export function rate(n: number, seconds: number): string {
  if (n === 0 || seconds === 0) return '0 per second';
  const [value, unit] =
    n >= seconds ? [n / seconds, 'second'] : n * 60 >= seconds ? [(n * 60) / seconds, 'minute'] : [(n * 3600) / seconds, 'hour'];
  return `${value < 10 ? value.toFixed(1).replace(/\.0$/, '') : Math.round(value).toLocaleString('en')} per ${unit}`;
}

export const startOf = (r: Row): number => Date.parse(r.start) / 1000;
