import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { readCourse } from './course';

// The server has so many final records, one in each minute, and one open one.
let finals: number;
const calls: string[] = [];
const start = Date.parse('2026-11-29T00:00:00Z');
const record = (i: number) => ({ usage_id: `f${i}`, period_start: new Date(start + i * 60_000).toISOString(), units: 1, requests: 1 });

beforeEach(() => {
  calls.length = 0;
  localStorage.setItem('keygate-session', 'acc_1');
  vi.stubGlobal('fetch', (address: string) => {
    const query = new URL(address, 'http://localhost').searchParams;
    calls.push(`${query.get('state')} ${query.get('since')?.slice(11, 16)} ${query.get('cursor') ?? '-'}`);
    const from = Number(query.get('cursor') ?? 0);
    const all = query.get('state') === 'open' ? [{ ...record(0), usage_id: 'open' }] : Array.from({ length: finals }, (_, i) => record(i));
    const next = from + 100 < all.length ? String(from + 100) : null;
    return Promise.resolve(
      new Response(JSON.stringify({ data: all.slice(from, from + 100), next_cursor: next }), {
        headers: { 'Content-Type': 'application/json' },
      }),
    );
  });
});
afterEach(() => vi.unstubAllGlobals());

// Guarantee: final records are read once: another reading begins with the last page, which may have more by now; records from before
// the time that is shown are left out. A cursor goes with the time that it was read with.
test('final records are read once', async () => {
  const of = { owner_id: 'own_a', meter: 'requests' };
  const signal = new AbortController().signal;
  const ids = (r: { records: { usage_id: string }[] | null }) => new Set(r.records?.map((one) => one.usage_id)).size;
  finals = 250;
  const first = await readCourse(of, () => start, undefined, signal);
  expect([calls, ids(first)]).toEqual([['open 00:00 -', 'final 00:00 -', 'final 00:00 100', 'final 00:00 200'], 251]);
  calls.length = 0;
  finals = 320;
  const second = await readCourse(of, () => start + 10 * 60_000, first.final, signal);
  expect([calls, ids(second)]).toEqual([['open 00:00 -', 'final 00:00 200', 'final 00:00 300'], 311]);
  calls.length = 0;
  await readCourse(of, () => start - 60_000, second.final, signal); // earlier than what was kept
  expect(calls[1]).toBe('final 23:59 -');
  finals = 2001;
  expect((await readCourse(of, () => start, second.final, signal)).records).toBeNull();
});
