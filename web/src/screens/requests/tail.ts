import { useEffect, useRef, useState } from 'react';
import { api, serverNow, url } from '../../api/client';
import { parse } from '../../api/json';
import type { Line } from './columns';
import type { LoggedRequest } from './explain';

// At most so many lines are kept, on the page and while it is paused.
export const most = 500;

// A Tail is a bounded list of lines, newest first.
export interface Tail {
  lines: Line[];
  next: number; // number of the next line about skipped requests
}

export const emptyTail: Tail = { lines: [], next: 1 };

// add puts lines on top, oldest of them first. Counts of skipped requests that follow each other become one.
export function add(tail: Tail, arrived: (LoggedRequest | { skipped: number })[]): Tail {
  let { next } = tail;
  const lines: Line[] = [];
  for (const a of arrived) {
    if (!('skipped' in a)) {
      lines.unshift(a);
      continue;
    }
    const [last] = lines;
    if (last && 'skipped' in last) lines[0] = { ...last, skipped: last.skipped + a.skipped };
    else lines.unshift({ skipped: a.skipped, id: next++ });
  }
  return { lines: [...lines, ...tail.lines].slice(0, most), next };
}

// How far the reads of the list overlap, in milliseconds: a request is in it within a second.
const overlap = 5_000;
const every = 2_000;

// poller returns a function that reads what is new in the list. It stands in for the stream where a proxy
// cuts or holds back streams.
export function poller(read: (since: string, cursor?: string) => Promise<{ data: LoggedRequest[]; next_cursor: string | null }>, now: () => number) {
  let from = now();
  let seen = new Set<string>();
  return async (): Promise<(LoggedRequest | { skipped: number })[]> => {
    const since = new Date(from - overlap).toISOString();
    const all: LoggedRequest[] = [];
    let cursor: string | undefined;
    do {
      const page = await read(since, cursor);
      all.push(...page.data);
      cursor = page.next_cursor ?? undefined;
    } while (cursor && all.length < most);
    const fresh = all.filter((r) => !seen.has(r.request_id)).toReversed();
    seen = new Set(all.map((r) => r.request_id));
    for (const r of all) from = Math.max(from, Date.parse(r.time));
    // How many were on the pages that were not read is not known.
    return cursor ? [{ skipped: 0 }, ...fresh] : fresh;
  };
}

export type State = 'connecting' | 'open' | 'polling' | 'ended';

// useTail follows the refused and failed requests of the filters. While it is paused, what arrives is kept, up
// to the bound; beyond it the oldest are counted as skipped. When the stream ends, it begins anew; when it
// cannot be opened though the server answers, the list is read every 2 s.
export function useTail(query: Record<string, string | undefined>, paused: boolean) {
  const address = url('/v1/requests/stream', {}, query);
  const [tail, setTail] = useState(emptyTail);
  const [state, setState] = useState<State>('connecting');
  const [waiting, setWaiting] = useState(0);
  const hold = useRef(paused);
  const filters = useRef(query);
  useEffect(() => {
    hold.current = paused;
    filters.current = query;
  });
  useEffect(() => {
    let source: EventSource | null = null;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let wait = 1_000;
    let opened = false;
    let gone = false;
    let arrived: (LoggedRequest | { skipped: number })[] = [];
    let dropped = 0;
    const push = (a: LoggedRequest | { skipped: number }) => {
      arrived.push(a);
      while (arrived.length > most) {
        const oldest = arrived.shift();
        dropped += oldest && 'skipped' in oldest ? oldest.skipped : 1;
      }
    };
    const poll = poller(async (since, cursor) => (await api.get('/v1/requests', { query: { ...filters.current, since, cursor, limit: 100 } })).data, serverNow);
    const read = async () => {
      try {
        const found = await poll();
        if (gone) return;
        found.forEach(push);
        setState('polling');
      } catch {
        if (gone) return;
        setState('ended');
      }
      retry = setTimeout(() => void read(), every);
    };
    const open = () => {
      setState('connecting');
      source = new EventSource(address);
      source.addEventListener('open', () => {
        wait = 1_000;
        opened = true;
        setState('open');
      });
      source.addEventListener('request', (e) => push(parse((e as MessageEvent<string>).data) as LoggedRequest));
      source.addEventListener('skipped', (e) => push({ skipped: Number((parse((e as MessageEvent<string>).data) as { count: number | bigint }).count) }));
      // The browser would try again at once and for ever; here the waits grow. An ordinary call finds out
      // whether the session has ended or the server is away, which the shell then says.
      source.addEventListener('error', () => {
        source?.close();
        setState('ended');
        const again = () => {
          if (gone) return;
          retry = setTimeout(open, wait);
          wait = Math.min(wait * 2, 15_000);
        };
        void api.get('/v1/account').then(() => {
          if (opened) again();
          else if (!gone) void read();
        }, again);
      });
    };
    open();
    // Lines are shown twice a second, so that thousands of them cost no more than a few.
    const timer = setInterval(() => {
      setWaiting(hold.current ? arrived.length : 0);
      if (hold.current || (arrived.length === 0 && dropped === 0)) return;
      const next = dropped > 0 ? [{ skipped: dropped }, ...arrived] : arrived;
      arrived = [];
      dropped = 0;
      setTail((t) => add(t, next));
    }, 500);
    return () => {
      gone = true;
      source?.close();
      clearTimeout(retry);
      clearInterval(timer);
      setTail(emptyTail);
    };
  }, [address]);
  return { lines: tail.lines, state, waiting, clear: () => setTail((t) => ({ ...t, lines: [] })) };
}
