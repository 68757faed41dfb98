import type { Schemas } from '../api/client';
import { count, plural, wholeNumber } from './format';
import { quote } from './shell';
import { amountWords, exactly } from './usage';

// The three parts of a limit as text; "" means that a part is not set.
export interface LimitText {
  sustained: string;
  burst: string;
  daily: string;
}

export const noLimit: LimitText = { sustained: '', burst: '', daily: '' };

// limitText returns the parts of a limit as a record has it.
export function limitText(
  limit: Schemas['Key']['rate_limit'] | Schemas['Route']['rate_limit'] | Schemas['Gateway']['global_rate_limit'],
): LimitText {
  if (!limit) return noLimit;
  if (typeof limit === 'string') return { ...noLimit, sustained: limit };
  return { sustained: limit.sustained ?? '', burst: limit.burst ?? '', daily: ('daily' in limit ? limit.daily : null) ?? '' };
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
  return 'per' in limit && limit.per ? `${parts} per ${limit.per}` : parts;
}

// Whom the limit of a route counts, as a choice of a form: "shared" stands for no per.
export const perChoices = [
  { value: 'shared', label: 'All callers together' },
  { value: 'key', label: 'Each key on its own' },
  { value: 'address', label: 'Each client address on its own' },
];

// perOf returns the choice that a record has.
export const perOf = (limit: Schemas['Route']['rate_limit']): string => limit?.per ?? 'shared';

// perPart returns the part of a limit that a choice stands for.
export const perPart = (choice: string): { per: string } | object => (choice === 'shared' ? {} : { per: choice });

// How many requests of a route may be in flight, as its form has it; "" means that there is no limit.
export interface InFlight {
  max: string;
  per: string; // a choice of inFlightChoices
}

export const anyInFlight: InFlight = { max: '', per: 'shared' };

// Whom the limit of requests in flight of a route counts.
export const inFlightChoices = perChoices.filter((c) => c.value !== 'address');

// inFlightText returns a limit of requests in flight as a route has it.
export const inFlightText = (c: Schemas['Concurrency']): InFlight => (c ? { max: String(c.max), per: c.per ?? 'shared' } : anyInFlight);

// inFlightValue returns what a call takes for a limit of requests in flight of a route: null for none.
export const inFlightValue = ({ max, per }: InFlight) => (max.trim() ? { max: wholeNumber(max), ...perPart(per) } : null);

// inFlightFlag is the value of --concurrency for a route.
export const inFlightFlag = ({ max, per }: InFlight): string =>
  max.trim() ? `${wholeNumber(max)}${per === 'shared' ? '' : `/${per}`}` : '';

// showInFlight says how many requests of a route may be in flight: "5 in flight per key".
const showInFlight = ({ max, per }: NonNullable<Schemas['Concurrency']>): string => `${count(max)} in flight${per ? ` per ${per}` : ''}`;

// showLimits says all limits of a route in a few words.
export const showLimits = (r: Pick<Schemas['Route'], 'rate_limit' | 'concurrency'>): string =>
  [r.rate_limit && showLimit(r.rate_limit), r.concurrency && showInFlight(r.concurrency)].filter(Boolean).join(', ') || '–';

// spellInFlight says how many requests may be in flight: "5 requests in flight".
export const spellInFlight = (n: number | bigint): string => `${plural(n, 'request')} in flight`;

// limitLabel names a limit by its scope and, if it has one, its name.
export function limitLabel({ limit_scope, limit_name }: { limit_scope?: unknown; limit_name?: unknown }): string {
  const name = String(limit_name ?? '');
  if (limit_scope !== 'concurrency' || name.includes('.')) return name || String(limit_scope ?? '');
  return name ? `requests in flight of the ${name}` : 'requests in flight';
}

// routeFlags are the flags of the limit of a route: every part that is set, and an empty one for each part
// that before had and is gone.
export function routeFlags(text: LimitText, per: string, before: LimitText = noLimit, perBefore = 'shared'): string[] {
  const names = ['sustained', 'burst', 'daily'] as const;
  if (names.every((n) => !text[n].trim())) return names.some((n) => before[n]) ? ['--no-limit'] : [];
  const flags = names.filter((n) => text[n].trim() || before[n]).map((n) => `--${n} ${quote(text[n].trim())}`);
  if (per !== 'shared') flags.push(`--per ${per}`);
  else if (perBefore !== 'shared') flags.push("--per ''");
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

const unitNames: Record<string, string> = { s: 'second', sec: 'second', min: 'minute', h: 'hour' };

// spellAmount says how much of a meter a limit lets through, and names the meter unless it is requests.
export const spellAmount = (n: string, meter: string): string =>
  !/^\d+$/.test(n) ? n : meter === 'requests' ? count(BigInt(n)) : amountWords(meter, BigInt(n));

// spell says a rate in words: "5/min" is "5 per minute".
function spell(rate: string, meter = 'requests'): string {
  const [n = '', unit = ''] = rate.split('/');
  return `${spellAmount(n, meter)} per ${unitNames[unit] ?? unit}`;
}

// spellLimit says a limit in words, such as "5 per minute, 10 at once".
export function spellLimit({ sustained, burst, daily }: LimitText, meter = 'requests'): string {
  const [most = ''] = burst.split('/');
  const atOnce = /^\d+$/.test(most) ? exactly(meter, BigInt(most)) : most;
  return [sustained && spell(sustained, meter), burst && `${atOnce} at once`, daily && spell(daily)].filter(Boolean).join(', ');
}

// capacity is how many requests a limit lets through at once: its burst, or else its rate.
export const capacity = ({ sustained, burst }: LimitText): number => Number.parseInt(burst || sustained, 10);

// doubled returns a limit with twice the rates, or twice the daily cap.
export function doubled(limit: LimitText, daily: boolean): LimitText {
  const twice = (rate: string) => rate.replace(/^\d+/, (n) => String(BigInt(n) * 2n));
  return daily ? { ...limit, daily: twice(limit.daily) } : { ...limit, sustained: twice(limit.sustained), burst: twice(limit.burst) };
}
