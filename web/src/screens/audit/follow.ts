import { useEffect, useState } from 'react';
import { api, ApiError } from '../../api/client';
import { type Entry, keyOf } from './entry';

const shown = 500; // rows that the page keeps
const every = 2_000; // milliseconds
const pages = 5; // at most, for one look: as many rows as are shown

// A line of the followed log: a record, or a note that more came than could be read.
// skipped is how many records were read there; there were more.
export type Line = { entry: Entry; key: string } | { skipped: number; key: string };

// reaches says whether records go back as far as the lines that are there.
function reaches(lines: Line[], records: Entry[]): boolean {
  const known = new Set(lines.map((l) => l.key));
  return lines.length === 0 || records.some((e) => known.has(keyOf(e)));
}

// merge puts the newest page above the lines that are there. If the page does not reach them, a line says
// that entries were skipped.
export function merge(lines: Line[], page: Entry[]): Line[] {
  const known = new Set(lines.map((l) => l.key));
  const fresh = page.filter((e) => !known.has(keyOf(e))).map((entry) => ({ entry, key: keyOf(entry) }));
  if (fresh.length === 0) return lines;
  const gap = lines.length > 0 && fresh.length === page.length;
  const oldest = fresh[fresh.length - 1]?.key ?? '';
  return [...fresh, ...(gap ? [{ skipped: fresh.length, key: `skipped ${oldest}` }] : []), ...lines].slice(0, shown + 1);
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
    let seen: Line[] | undefined;
    const read = async () => {
      if (!document.hidden) {
        try {
          const before = seen;
          const found: Entry[] = [];
          let cursor: string | undefined;
          for (let more = true; more;) {
            const { data } = await api.get('/v1/audit-log', {
              query: { ...(JSON.parse(text) as Record<string, string>), limit: 100, cursor },
              signal: stop.signal,
            });
            found.push(...data.data);
            cursor = data.next_cursor ?? undefined;
            // At first, and once a record is met that is shown, the older ones do not matter.
            more = Boolean(cursor && before && !reaches(before, found)) && found.length < pages * 100;
          }
          seen = merge(before ?? [], found);
          setLines(seen);
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
