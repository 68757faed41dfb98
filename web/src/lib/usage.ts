import type { Schemas } from '../api/client';
import { bytes, type Count, count, plural, size } from './format';

export type UsageRecord = Schemas['UsageEntry'];

// meters has the meters that Keygate counts by itself, with the words for them. Others are named by costs of routes.
export const meters: Record<string, string> = { requests: 'requests', bytes_in: 'bytes in', bytes_out: 'bytes out' };

export const meterWords = (meter: string): string => meters[meter] ?? meter;

// meterSuggestions are the meters that Keygate counts by itself, and those that limits of plans count.
export const meterSuggestions = (plans: { limits: { meter: string }[] }[]): string[] => [
  ...new Set([...Object.keys(meters), ...plans.flatMap((p) => p.limits.map((l) => l.meter)).toSorted()]),
];

// meterProblem says what is wrong with the name of a meter; undefined if nothing is.
export const meterProblem = (meter: string): string | undefined =>
  /^[a-z0-9_]{1,32}$/.test(meter) ? undefined : 'must have 1 to 32 characters of a-z, 0-9 and _';

// ownMeter returns the name of a meter that costs of routes name; "" for those of Keygate, and for what is no name.
export const ownMeter = (meter: string): string => (meter in meters || meterProblem(meter) ? '' : meter);

export const isBytes = (meter: string): boolean => meter === 'bytes_in' || meter === 'bytes_out';

// unitsOf shows units of a meter: 4,120, or 1.5 MiB; or 1.6 MB, if they are shown beside a decimal size.
export const unitsOf = (meter: string, units: Count, beside?: Count): string => (isBytes(meter) ? bytes(units, beside) : count(units));

// exactly shows units of a meter without loss: 4,120, or 1536 KiB.
export const exactly = (meter: string, units: Count): string => (isBytes(meter) ? size(units) : count(units));

const bodies: Record<string, string> = { bytes_in: 'of requests', bytes_out: 'of responses' };

// amountWords says exactly how much of what a limit lets through: "10 GiB of responses", "100,000 requests".
export const amountWords = (meter: string, units: Count): string =>
  meter === 'requests' ? plural(units, 'request') : `${exactly(meter, units)} ${bodies[meter] ?? meterWords(meter)}`;

const day = 86_400_000;

// periodWords shows the period of a record: "28 Nov, 17:00–18:00" in the browser's zone, or, for a day, which is one of UTC,
// "28 Nov 2026".
export function periodWords({ period_start, period_end }: Pick<UsageRecord, 'period_start' | 'period_end'>, timeZone?: string): string {
  const [start, end] = [new Date(period_start), new Date(period_end)];
  if (end.getTime() - start.getTime() === day)
    return start.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric', timeZone: 'UTC' });
  const date = start.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', timeZone });
  const clock = (t: Date) => t.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', timeZone });
  return `${date}, ${clock(start)}–${clock(end)}`;
}

// The views of the screen. Days have no open records.
export type View = 'final' | 'open' | 'days';

export const viewOf = (url: { state?: string; interval?: string }): View =>
  url.interval === '1d' ? 'days' : url.state === 'open' ? 'open' : 'final';

// paramsOf returns the parameters of a view.
export const paramsOf = (view: View): { state?: 'open'; interval?: '1d' } => ({
  state: view === 'open' ? 'open' : undefined,
  interval: view === 'days' ? '1d' : undefined,
});

// toView returns what changes in the URL for another view. Hours become days, so that both have other times.
export const toView = (from: View, to: View): ReturnType<typeof paramsOf> & { since?: undefined; until?: undefined } => ({
  ...paramsOf(to),
  ...((from === 'days') !== (to === 'days') && { since: undefined, until: undefined }),
});
