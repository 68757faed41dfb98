import { expect, test } from 'vitest';
import type { LoggedRequest } from './explain';
import { add, emptyTail, most, poller, Waiting } from './tail';

const request = (n: number) => ({ request_id: `req_${n}` }) as LoggedRequest;
const names = (lines: ReturnType<typeof add>['lines']) => lines.map((l) => ('skipped' in l ? `${l.skipped} skipped` : l.request_id));

// Guarantee: the tail has the newest lines on top, says what is missing, and is bounded.
test('the tail of requests', () => {
  const one = add(emptyTail, [request(1), { skipped: 3 }, { skipped: 4 }, request(2)]);
  expect(names(one.lines)).toEqual(['req_2', '7 skipped', 'req_1']);
  const two = add(one, [{ skipped: 1 }, request(3)]);
  expect(names(two.lines)).toEqual(['req_3', '1 skipped', 'req_2', '7 skipped', 'req_1']);
  expect(new Set(two.lines.map((l) => ('skipped' in l ? l.id : l.request_id))).size).toBe(5);
  const full = add(
    two,
    Array.from({ length: most }, (_, n) => request(100 + n)),
  );
  expect(full.lines).toHaveLength(most);
  expect(names(full.lines)[0]).toBe(`req_${100 + most - 1}`);
});

// Guarantee: where there is no stream, each request of the list is shown once, oldest first, and what could
// not be read is said.
test('the list stands in for the stream', async () => {
  const at = Date.parse('2026-03-01T12:00:00Z');
  const one = (n: number) => ({ request_id: `req_${n}`, time: new Date(at + n * 1_000).toISOString() }) as LoggedRequest;
  let log: LoggedRequest[] = [one(1)];
  const asked: string[] = [];
  const poll = poller((since, cursor) => {
    asked.push(since);
    const from = Number(cursor ?? 0);
    const found = log.filter((r) => r.time >= since);
    return Promise.resolve({ data: found.slice(from, from + 100), next_cursor: from + 100 < found.length ? String(from + 100) : null });
  }, at);
  const ids = (lines: Awaited<ReturnType<typeof poll>>) => lines.map((l) => ('skipped' in l ? 'skipped' : l.request_id));
  expect(ids(await poll())).toEqual(['req_1']);
  expect(ids(await poll())).toEqual([]);
  log = [one(3), one(2), one(1)];
  expect(ids(await poll())).toEqual(['req_2', 'req_3']);
  expect(ids(await poll())).toEqual([]);
  expect(asked.at(-1)).toBe('2026-03-01T11:59:58.000Z');
  log = Array.from({ length: 700 }, (_, n) => one(800 - n));
  const many = ids(await poll());
  expect(many[0]).toBe('skipped');
  expect(many).toHaveLength(most + 1);
  expect(many.at(-1)).toBe('req_800');
});

// Guarantee: what waits while the tail is paused is bounded, however long that is; what is dropped is counted, and
// a request that comes from the stream and from the list is passed on once.
test('what waits is bounded', () => {
  const waiting = new Waiting();
  for (let n = 0; n < 100_000; n++) waiting.push(n % 100 === 0 ? { skipped: 2 } : request(n));
  expect(waiting.length).toBe(most - 1);
  expect(
    Object.values(waiting as unknown as Record<string, { size?: number; length?: number }>).every(
      (v) => (v.size ?? v.length ?? 0) <= 4 * most,
    ),
  ).toBe(true);
  const { kept, skipped } = waiting.count();
  expect([kept < most, kept + skipped]).toEqual([true, 101_000]);
  waiting.push(request(99_999));
  const taken = waiting.take();
  const total = taken.reduce((sum, l) => sum + ('skipped' in l ? l.skipped : 1), 0);
  expect(total).toBe(100_000 + 1_000);
  expect(taken.at(-1)).toEqual(request(99_999));
  waiting.push(request(99_999));
  expect(waiting.take()).toEqual([]);
  waiting.push({ skipped: 0 });
  for (let n = 0; n < most; n++) waiting.push(request(200_000 + n));
  expect(add(emptyTail, waiting.take()).lines.at(-1)).toEqual({ skipped: 0, id: 1 });
});
