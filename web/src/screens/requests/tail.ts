import { useEffect, useRef, useState } from 'react';
import { api, url } from '../../api/client';
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

export type State = 'connecting' | 'open' | 'ended';

// useTail follows the refused and failed requests of the filters. While it is paused, what arrives is kept, up
// to the bound; beyond it the oldest are counted as skipped. When the stream ends, it begins anew.
export function useTail(query: Record<string, string | undefined>, paused: boolean) {
  const address = url('/v1/requests/stream', {}, query);
  const [tail, setTail] = useState(emptyTail);
  const [state, setState] = useState<State>('connecting');
  const [waiting, setWaiting] = useState(0);
  const hold = useRef(paused);
  useEffect(() => { hold.current = paused; }, [paused]);
  useEffect(() => {
    let source: EventSource | null = null;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let wait = 1_000;
    let arrived: (LoggedRequest | { skipped: number })[] = [];
    let dropped = 0;
    const push = (a: LoggedRequest | { skipped: number }) => {
      arrived.push(a);
      while (arrived.length > most) {
        const oldest = arrived.shift();
        dropped += oldest && 'skipped' in oldest ? oldest.skipped : 1;
      }
    };
    const open = () => {
      setState('connecting');
      source = new EventSource(address);
      source.addEventListener('open', () => {
        wait = 1_000;
        setState('open');
      });
      source.addEventListener('request', (e) => push(parse((e as MessageEvent<string>).data) as LoggedRequest));
      source.addEventListener('skipped', (e) => push({ skipped: Number((parse((e as MessageEvent<string>).data) as { count: number | bigint }).count) }));
      // The browser would try again at once and for ever; here the waits grow, and an ordinary call finds out
      // whether the session has ended or the server is away, which the shell then says.
      source.addEventListener('error', () => {
        source?.close();
        setState('ended');
        retry = setTimeout(open, wait);
        wait = Math.min(wait * 2, 15_000);
        void api.get('/v1/account').catch(() => {});
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
      source?.close();
      clearTimeout(retry);
      clearInterval(timer);
      setTail(emptyTail);
    };
  }, [address]);
  return { lines: tail.lines, state, waiting, clear: () => setTail((t) => ({ ...t, lines: [] })) };
}
