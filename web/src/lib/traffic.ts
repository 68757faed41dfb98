import type { Schemas } from '../api/client';
import { serverNow } from '../api/client';
import { type Range, ranges } from './time';

export type Row = Schemas['TrafficRow'];

// Each range has an interval of the report that gives at most some 170 points.
export const intervalOf: Record<Range, '1m' | '1h'> = { '15m': '1m', '1h': '1m', '24h': '1h', '7d': '1h' };

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

export const startOf = (r: Row): number => Date.parse(r.start) / 1000;
