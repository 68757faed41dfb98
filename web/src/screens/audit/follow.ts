import { useEffect, useState } from 'react';
import { api, ApiError } from '../../api/client';
import { type Entry, keyOf } from './entry';

const shown = 500; // rows that the page keeps
const every = 2_000; // milliseconds

// A line of the followed log: a record, or a place where more came than could be read.
export type Line = { entry: Entry; key: string } | { skipped: true; key: string };

// merge puts the newest page above the lines that are there. If the page does not reach them, a line says
// that entries were skipped.
export function merge(lines: Line[], page: Entry[]): Line[] {
  const known = new Set(lines.map((l) => l.key));
  const fresh = page.filter((e) => !known.has(keyOf(e))).map((entry) => ({ entry, key: keyOf(entry) }));
  if (fresh.length === 0) return lines;
  const gap = lines.length > 0 && fresh.length === page.length;
  const oldest = fresh[fresh.length - 1]?.key ?? '';
  return [...fresh, ...(gap ? [{ skipped: true as const, key: `skipped ${oldest}` }] : []), ...lines].slice(0, shown);
}

// useFollow reads the newest records again and again while on is set and the page is visible.
export function useFollow(on: boolean, query: Record<string, string | undefined>): { lines: Line[] | undefined; error: ApiError | null } {
  const [lines, setLines] = useState<Line[]>();
  const [error, setError] = useState<ApiError | null>(null);
  const text = JSON.stringify(query);
  useEffect(() => {
    if (!on) return;
    setLines(undefined);
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      if (!document.hidden) {
        try {
          const { data } = await api.get('/v1/audit-log', { query: { ...(JSON.parse(text) as Record<string, string>), limit: 100 }, signal: stop.signal });
          setLines((old) => merge(old ?? [], data.data));
          setError(null);
        } catch (e) {
          if (stop.signal.aborted) return;
          if (e instanceof ApiError) setError(e);
        }
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void read(), every);
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [on, text]);
  return { lines, error };
}
