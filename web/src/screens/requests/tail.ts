import { useEffect, useRef, useState } from 'react';
import { api, serverNow, url } from '../../api/client';
import { parse } from '../../api/json';
import { useConnection } from '../../api/session';
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

// add puts lines on top, oldest of them first. Counts of skipped requests that follow each other become one; 0 means
// that the number is not known.
export function add(tail: Tail, arrived: (LoggedRequest | { skipped: number })[]): Tail {
  let { next } = tail;
  const lines: Line[] = [];
  for (const a of arrived) {
    if (!('skipped' in a)) {
      lines.unshift(a);
      continue;
    }
    const [last] = lines;
    if (last && 'skipped' in last) lines[0] = { ...last, skipped: last.skipped === 0 || a.skipped === 0 ? 0 : last.skipped + a.skipped };
    else lines.unshift({ skipped: a.skipped, id: next++ });
  }
  return { lines: [...lines, ...tail.lines].slice(0, most), next };
}

// A Waiting keeps what has arrived and is not shown yet: the newest, up to the bound, and how many others there
// were. It passes on each request once.
export class Waiting {
  private lines: (LoggedRequest | { skipped: number })[] = [];
  private known = new Set<string>(); // the newest requests passed on or waiting, oldest first
  private dropped = 0;
  private unknown = false; // further ones were skipped whose number is not known

  push(a: LoggedRequest | { skipped: number }) {
    if (!('skipped' in a)) {
      if (this.known.has(a.request_id)) return;
      this.known.add(a.request_id);
      if (this.known.size > 4 * most) this.known.delete(this.known.values().next().value ?? '');
    }
    this.lines.push(a);
    if (this.lines.length < most) return; // there is room for the line that says what was skipped
    const oldest = this.lines.shift();
    this.dropped += oldest && 'skipped' in oldest ? oldest.skipped : 1;
    this.unknown ||= oldest !== undefined && 'skipped' in oldest && oldest.skipped === 0;
  }

  get length(): number {
    return this.lines.length;
  }

  // count returns how many requests wait, and how many were skipped, by the server or here.
  count(): { kept: number; skipped: number } {
    const skips = this.lines.filter((l) => 'skipped' in l);
    return { kept: this.lines.length - skips.length, skipped: skips.reduce((sum, l) => sum + l.skipped, this.dropped) };
  }

  // take returns what waits, oldest first, and forgets it.
  take(): (LoggedRequest | { skipped: number })[] {
    const taken = this.dropped > 0 || this.unknown ? [{ skipped: this.unknown ? 0 : this.dropped }, ...this.lines] : this.lines;
    this.lines = [];
    this.dropped = 0;
    this.unknown = false;
    return taken;
  }
}

// How far the reads of the list overlap, in milliseconds: a request is in it within a second.
const overlap = 5_000;
const every = 2_000;

// poller returns a function that reads what the list has got since the time from. It stands in for the stream
// where a proxy cuts or holds back streams, and reads what came while there was none.
export function poller(
  read: (since: string, cursor?: string) => Promise<{ data: LoggedRequest[]; next_cursor: string | null }>,
  from: number,
) {
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

export type State = 'connecting' | 'open' | 'polling' | 'cut' | 'ended';

// useTail follows the refused and failed requests of the filters. While it is paused, what arrives waits, up to the
// bound; beyond it the oldest are counted as skipped. When the stream is cut off, it begins again, and what came
// meanwhile is read from the list; when it cannot be opened though the server responds, the list is read every 2 s.
// It ends with the session, and goes on with the next one. The filters stay the same as long as the component is
// mounted.
export function useTail(query: Record<string, string | undefined>, paused: boolean) {
  const address = url('/v1/requests/stream', {}, query);
  const { ended } = useConnection();
  const [tail, setTail] = useState(emptyTail);
  const [state, setState] = useState<State>('connecting');
  const [waiting, setWaiting] = useState({ kept: 0, skipped: 0 });
  const hold = useRef(paused);
  const filters = useRef(query);
  const stand = useRef<{ arrived: Waiting; since: number | null } | null>(null); // kept while there is no session
  useEffect(() => {
    hold.current = paused;
    filters.current = query;
  });
  useEffect(() => {
    if (ended) {
      setState('ended');
      return;
    }
    stand.current ??= { arrived: new Waiting(), since: null };
    const now = stand.current;
    const { arrived } = now;
    let source: EventSource | null = null;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let wait = 1_000;
    let opened = false;
    let gone = false;
    const list = (from: number) =>
      poller(
        async (since, cursor) => (await api.get('/v1/requests', { query: { ...filters.current, since, cursor, limit: 100 } })).data,
        from,
      );
    let poll: ReturnType<typeof poller> | undefined;
    const read = async () => {
      poll ??= list(now.since ?? serverNow());
      now.since ??= serverNow();
      try {
        const found = await poll();
        if (gone) return;
        for (const f of found) arrived.push(f);
        now.since = serverNow();
        setState('polling');
      } catch {
        if (gone) return;
        setState('cut');
      }
      retry = setTimeout(() => void read(), every);
    };
    // What came since the stream was cut off is in the list.
    const catchUp = async () => {
      if (now.since === null) return;
      const found = await list(now.since)().catch(() => [{ skipped: 0 }]);
      if (!gone) for (const f of found) arrived.push(f);
    };
    const open = () => {
      setState('connecting');
      source = new EventSource(address);
      source.addEventListener('open', () => {
        wait = 1_000;
        opened = true;
        setState('open');
        void catchUp().then(() => {
          if (!gone) now.since = null;
        });
      });
      source.addEventListener('request', (e) => arrived.push(parse((e as MessageEvent<string>).data) as LoggedRequest));
      source.addEventListener('skipped', (e) =>
        arrived.push({ skipped: Number((parse((e as MessageEvent<string>).data) as { count: number | bigint }).count) }),
      );
      // The browser would try again at once and for ever; here the waits grow. An ordinary call finds out
      // whether the session has ended or the server is away, which the shell then says.
      source.addEventListener('error', () => {
        source?.close();
        if (opened) now.since ??= serverNow();
        setState('cut');
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
      const next = arrived.count();
      setWaiting((w) => (w.kept === next.kept && w.skipped === next.skipped ? w : next));
      if (hold.current || arrived.length === 0) return;
      const taken = arrived.take();
      setTail((t) => add(t, taken));
    }, 500);
    return () => {
      gone = true;
      if (opened) now.since ??= serverNow();
      source?.close();
      clearTimeout(retry);
      clearInterval(timer);
    };
  }, [address, ended]);
  return { lines: tail.lines, state, waiting, clear: () => setTail((t) => ({ ...t, lines: [] })) };
}
