import { useQuery } from '@tanstack/react-query';
import type { UsageRecord } from '../lib/usage';
import { api, type ApiError, serverNow } from './client';
import { queries } from './hooks';

const pageSize = 100;
const mostPages = 20; // of each state

// What is counted: the records of a meter of an owner, through one gateway or all.
export interface Counted {
  owner_id: string;
  meter: string;
  gateway_id?: string;
}

// A Reading is the records that were read at one time; records is null if there are too many to add up.
interface Reading {
  now: number;
  records: UsageRecord[] | null;
  final: Final;
}

// Final is the final records since a time, which never change, as far as whole pages have them; cursor is behind these pages.
interface Final {
  since: number;
  records: UsageRecord[];
  cursor?: string;
}

// useCourse reads the records that begin at sinceOf(now) or later. span names that time. It reads final records once.
export function useCourse(of: Counted, span: string, sinceOf: (now: number) => number, options: { poll: boolean; enabled?: boolean }) {
  const queryKey = ['/v1/usage-records', 'course', of, span];
  return useQuery<Reading, ApiError>({
    queryKey,
    queryFn: ({ signal }) => readCourse(of, sinceOf, queries.getQueryData<Reading>(queryKey)?.final, signal),
    refetchInterval: options.poll ? 30_000 : false,
    enabled: options.enabled,
    staleTime: 30_000,
    retry: false,
  });
}

type Query = Counted & { since: string; state: 'open' | 'final'; limit: number };

// pages reads the pages behind a cursor, and returns their records and how to go on behind those that are whole: with their number,
// and the cursor. records is null if there are more than most pages.
async function pages(query: Query, most: number, first: string | undefined, signal: AbortSignal) {
  const records: UsageRecord[] = [];
  let [cursor, whole] = [first, 0];
  for (let page = 0; page < most; page++) {
    const { data } = await api.get('/v1/usage-records', { query: { ...query, cursor }, signal });
    records.push(...data.data);
    if (!data.next_cursor) return { records, whole, cursor };
    cursor = data.next_cursor;
    whole = records.length;
  }
  return { records: null, whole: 0, cursor: undefined };
}

// readCourse reads open records first: one that becomes final meanwhile is read twice, and none is missed. kept is what was read before:
// a cursor belongs to the since with which it was read.
export async function readCourse(
  of: Counted,
  sinceOf: (now: number) => number,
  kept: Final | undefined,
  signal: AbortSignal,
): Promise<Reading> {
  const now = serverNow();
  const from = sinceOf(now);
  const known = kept && kept.since <= from ? kept : { since: from, records: [] };
  const query = { ...of, since: new Date(known.since).toISOString(), limit: pageSize };
  const before = known.records.filter((r) => Date.parse(r.period_start) >= from);
  const open = await pages({ ...query, state: 'open' }, mostPages, undefined, signal);
  const final =
    open.records && (await pages({ ...query, state: 'final' }, mostPages - Math.ceil(before.length / pageSize), known.cursor, signal));
  if (!open.records || !final?.records) return { now, records: null, final: { since: from, records: [] } };
  return {
    now,
    records: [...open.records, ...before, ...final.records],
    final: { since: known.since, records: [...before, ...final.records.slice(0, final.whole)], cursor: final.cursor },
  };
}
