import { useEffect } from 'react';
import { serverNow } from '../api/client';
import { useUrl } from './url';

const units: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

// pointInTime returns text as the API takes a time. How long ago, such as 15m, becomes a time, so that a link
// keeps what it shows. What cannot be understood is returned as it is: the API says what is wrong.
export function pointInTime(text: string, now = serverNow()): string {
  const ago = /^(\d{1,6})([smhd])$/.exec(text.trim());
  if (ago) return `${new Date(now - Number(ago[1]) * (units[ago[2] ?? ''] ?? 0) * 1000).toISOString().slice(0, 19)}Z`;
  return text.trim();
}

// showPoint shows a time of the URL in the browser's zone.
export function showPoint(text: string): string {
  const time = Date.parse(text);
  return Number.isNaN(time) ? text : new Date(time).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

// useSpan returns since and until of the URL, after it has made times of what was typed as how long ago.
export function useSpan(): { since?: string; until?: string; ready: boolean } {
  const [{ since, until }, change] = useUrl<'since' | 'until'>();
  const ready = [since, until].every((t) => t === undefined || pointInTime(t) === t);
  useEffect(() => {
    if (!ready) change({ since: since && pointInTime(since), until: until && pointInTime(until) }, true);
  }, [ready, since, until, change]);
  return { since, until, ready };
}
