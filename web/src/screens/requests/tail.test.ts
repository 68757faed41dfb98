import { act } from 'react';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { runHook } from '../../test/hook';
import type { LoggedRequest } from './explain';
import { add, emptyTail, most, poller, useTail, Waiting } from './tail';

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

class FakeSource extends EventTarget {
  static all: FakeSource[] = [];
  closed = false;
  constructor(readonly address: string) {
    super();
    FakeSource.all.push(this);
  }
  close() {
    this.closed = true;
  }
  emit(type: string, data?: unknown) {
    act(() => void this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(data) })));
  }
}

// follow runs useTail against a server with these requests in its list.
function follow(log: LoggedRequest[] = []) {
  vi.useFakeTimers({ now: Date.parse('2026-03-01T12:00:00Z') });
  FakeSource.all = [];
  const server = { log, up: true, lists: 0 };
  vi.stubGlobal('EventSource', FakeSource);
  vi.stubGlobal('fetch', (address: string) => {
    if (!server.up) return Promise.reject(new TypeError('failed to fetch'));
    const list = address.includes('/v1/requests?');
    if (list) server.lists++;
    const body = list ? { data: server.log, next_cursor: null } : { account_id: 'acc_1', key: { scope: 'read' } };
    return Promise.resolve(new Response(JSON.stringify(body), { headers: { 'Content-Type': 'application/json' } }));
  });
  const browser = (newValue: string | null) =>
    act(async () => void window.dispatchEvent(new StorageEvent('storage', { key: 'keygate-session', newValue })));
  const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
  const query = { status: '429' };
  return { server, browser, pass, run: runHook((paused: boolean) => useTail(query, paused), false as boolean) };
}

const logged = (n: number) => ({ request_id: `req_${n}`, time: new Date(Date.now() + n).toISOString() }) as LoggedRequest;

describe('following the requests', () => {
  beforeEach(() => window.dispatchEvent(new StorageEvent('storage', { key: 'keygate-session', newValue: 'acc_1' })));
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  // Guarantee: lines are shown within half a second; while the tail is paused they wait and are counted.
  test('lines are shown, and wait while it is paused', async () => {
    const { run, pass } = follow();
    const [source] = FakeSource.all;
    expect([source?.address, run.now.state]).toEqual(['/v1/requests/stream?status=429', 'connecting']);
    source?.emit('open');
    expect(run.now.state).toBe('open');
    source?.emit('request', request(1));
    await pass(500);
    expect(names(run.now.lines)).toEqual(['req_1']);
    run.set(true);
    source?.emit('request', request(2));
    source?.emit('skipped', { count: 3 });
    await pass(5_000);
    expect(names(run.now.lines)).toEqual(['req_1']);
    expect(run.now.waiting).toEqual({ kept: 1, skipped: 3 });
    run.set(false);
    await pass(500);
    expect(names(run.now.lines)).toEqual(['3 skipped', 'req_2', 'req_1']);
    run.end();
    expect(source?.closed).toBe(true);
  });

  // Guarantee: a stream that is cut off begins again by itself, less and less often, and what came meanwhile is read
  // from the list, once.
  test('a stream that is cut off begins again', async () => {
    const { run, server, pass } = follow();
    FakeSource.all[0]?.emit('open');
    await pass(500);
    FakeSource.all[0]?.emit('request', logged(1));
    FakeSource.all[0]?.emit('error');
    expect(run.now.state).toBe('cut');
    for (const wait of [1_000, 2_000, 4_000, 8_000, 15_000, 15_000]) {
      const before = FakeSource.all.length;
      await pass(wait - 1);
      expect(FakeSource.all).toHaveLength(before);
      server.up = false;
      await pass(1);
      expect(FakeSource.all).toHaveLength(before + 1);
      FakeSource.all.at(-1)?.emit('error');
      await pass(0);
    }
    server.up = true;
    server.log = [logged(2), { ...logged(1), request_id: 'req_1' }];
    await pass(15_000);
    FakeSource.all.at(-1)?.emit('open');
    await pass(500);
    expect(run.now.state).toBe('open');
    expect(names(run.now.lines)).toEqual(['req_2', 'req_1']);
    run.end();
  });

  // Guarantee: where the stream cannot be opened though the server answers, the list is read every 2 s.
  test('the list is read where there is no stream', async () => {
    const { run, server, pass } = follow();
    FakeSource.all[0]?.emit('error');
    await pass(0);
    expect([run.now.state, server.lists]).toEqual(['polling', 1]);
    server.log = [logged(1)];
    await pass(2_500);
    expect(names(run.now.lines)).toEqual(['req_1']);
    server.up = false;
    await pass(2_000);
    expect(run.now.state).toBe('cut');
    server.up = true;
    await pass(2_000);
    expect(run.now.state).toBe('polling');
    expect(FakeSource.all).toHaveLength(1);
    run.end();
  });

  // Guarantee: the tail ends with the session and goes on with the next one, without a gap.
  test('the tail follows the session', async () => {
    const { run, server, browser, pass } = follow();
    FakeSource.all[0]?.emit('open');
    await pass(500);
    FakeSource.all[0]?.emit('request', logged(1));
    await pass(500);
    await browser(null);
    expect([run.now.state, FakeSource.all[0]?.closed]).toEqual(['ended', true]);
    await pass(60_000);
    expect(FakeSource.all).toHaveLength(1);
    server.log = [logged(-1)];
    await browser('acc_1');
    FakeSource.all[1]?.emit('open');
    await pass(500);
    expect(names(run.now.lines)).toEqual(['req_-1', 'req_1']);
    run.end();
  });
});
