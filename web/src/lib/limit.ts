import type { Schemas } from '../api/client';
import { quote } from './shell';

// The three parts of a limit as text; "" means that a part is not set.
export interface LimitText {
  sustained: string;
  burst: string;
  daily: string;
}

export const noLimit: LimitText = { sustained: '', burst: '', daily: '' };

// limitText returns the parts of a limit as a record has it.
export function limitText(limit: Schemas['Key']['rate_limit']): LimitText {
  if (!limit) return noLimit;
  if (typeof limit === 'string') return { ...noLimit, sustained: limit };
  return { sustained: limit.sustained ?? '', burst: limit.burst ?? '', daily: limit.daily ?? '' };
}

// limitValue returns what a call takes for a limit: null for none, and the short form where it says all.
export function limitValue({ sustained, burst, daily }: LimitText) {
  const parts = {
    ...(sustained.trim() && { sustained: sustained.trim() }),
    ...(burst.trim() && { burst: burst.trim() }),
    ...(daily.trim() && { daily: daily.trim() }),
  };
  const names = Object.keys(parts);
  if (names.length === 0) return null;
  return names.length === 1 && parts.sustained ? parts.sustained : parts;
}

// showLimit says a limit in a few words.
export function showLimit(limit: Schemas['Key']['rate_limit'] | Schemas['Route']['rate_limit']): string {
  if (!limit) return '–';
  if (typeof limit === 'string') return limit;
  const parts = [limit.sustained, limit.burst && `burst ${limit.burst}`, limit.daily].filter(Boolean).join(', ');
  return 'per' in limit && limit.per === 'key' ? `${parts} per key` : parts;
}

// routeFlags are the flags of the limit of a route: every part that is set, and an empty one for each part
// that before had and is gone.
export function routeFlags(text: LimitText, per: string, before: LimitText = noLimit, perBefore = 'shared'): string[] {
  const names = ['sustained', 'burst', 'daily'] as const;
  if (names.every((n) => !text[n].trim())) return names.some((n) => before[n]) ? ['--no-limit'] : [];
  const flags = names.filter((n) => text[n].trim() || before[n]).map((n) => `--${n} ${quote(text[n].trim())}`);
  if (per === 'key') flags.push('--per key');
  else if (perBefore === 'key') flags.push("--per ''");
  return flags;
}

// limitFlag is the value of --rate-limit.
export function limitFlag(text: LimitText): string | null {
  const value = limitValue(text);
  if (value === null || typeof value === 'string') return value;
  return Object.entries(value)
    .map(([k, v]) => `${k}=${v}`)
    .join(',');
}
