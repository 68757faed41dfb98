import type { Schemas } from '../api/client';
import { type Count, percent } from './format';
import { spellAmount } from './limit';
import { minuteOf } from './time';
import { amountWords, unitsOf } from './usage';

export type Usage = Schemas['QuotaUsage'];

// The windows of a quota, as a choice of a form.
export const windows = [
  { value: 'day', label: 'Day' },
  { value: 'week', label: 'Week, from Monday' },
  { value: 'month', label: 'Month' },
  { value: 'total', label: 'Total, never resets' },
];

// perWindow says what a window is after a count: "a month", "in total".
const perWindow = (unit: string): string => (unit === 'total' ? 'in total' : `a ${unit}`);

// quotaParts splits a quota such as "100000/month".
export function quotaParts(quota: string): { most: string; unit: string } {
  const [most = '', unit = ''] = quota.split('/');
  return { most, unit };
}

// spellQuota says a quota in words: "100,000 a month", or "10 GiB of responses a month".
export function spellQuota(quota: string, meter = 'requests'): string {
  const { most, unit } = quotaParts(quota);
  return `${spellAmount(most, meter)} ${perWindow(unit)}`;
}

// quotaNotes says what else there is to know of a quota: whether more is allowed, and when it warns.
export function quotaNotes({ overage, warn_at }: Pick<Schemas['PlanLimit'], 'overage' | 'warn_at'>): string[] {
  const warnings = (warn_at ?? []).map((p) => `${p}\u00a0%`).join(', ');
  return [...(overage === 'allow' ? ['more is allowed'] : []), ...(warnings ? [`warns at ${warnings}`] : [])];
}

export const defaultWarnAt = [80, 100];

// percentages returns percentages that were typed, such as "80 %, 100". What is no number is returned as it is.
export const percentages = (text: string) =>
  text
    .replaceAll('%', ' ')
    .split(/[\s,;]+/)
    .filter(Boolean)
    .map((word) => (/^\d{1,9}$/.test(word) ? Number(word) : word));

// wholeOf returns how many units a window has, with those that were granted.
export const wholeOf = (u: Usage): bigint => BigInt(u.count) + BigInt(u.grants);

// isUsedUp reports whether all units were used.
export const isUsedUp = (u: Usage): boolean => BigInt(u.used) >= wholeOf(u);

// shareWords says how much was used, and never 100 % of a quota that has some left.
export function shareWords(u: Usage): string {
  const text = percent(u.used, wholeOf(u));
  return text === '100 %' && !isUsedUp(u) ? '> 99 %' : text;
}

// A Projection is where the use of a window leads at its pace until now: to when all is used, in milliseconds, or to which
// share of the whole at the window's end.
export type Projection = { usedUp: number } | { share: number };

const least = 0.01; // of a window must have passed

// projection returns null if nothing can be said: the window never ends, has just begun, was not used, or is used up.
export function projection(u: Usage, now: number): Projection | null {
  if (!u.window_end || Number(u.used) === 0) return null;
  const [start, end] = [Date.parse(u.window_start), Date.parse(u.window_end)];
  const [passed, refuses] = [now - start, u.overage === 'refuse'];
  if (passed < (end - start) * least || now >= end || (refuses && isUsedUp(u))) return null;
  const used = Number(u.used) / Number(wholeOf(u));
  const share = (used * (end - start)) / passed;
  return refuses && share > 1 ? { usedUp: start + passed / used } : { share };
}

const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

// projectionWords says the projection, in the browser's zone as all times are; "" if there is none.
export function projectionWords(u: Usage, now: number): string {
  const p = projection(u, now);
  if (!p) return '';
  if ('share' in p) return `at this pace ${percent(p.share, 1)} at the end`;
  const soon = p.usedUp - now < 2 * 86_400_000;
  return `at this pace used up on ${soon ? minuteOf(p.usedUp / 1000) : day.format(p.usedUp)}`;
}

// unitsIn returns what shows units of a quota, in bytes with the kind of units that its count has.
export const unitsIn =
  (u: Usage) =>
  (units: Count): string =>
    unitsOf(u.meter, units, u.count);

// leftWords says what is left of a quota, with units as show shows them.
export function leftWords(u: Usage, show = unitsIn(u)): string {
  if (BigInt(u.used) > wholeOf(u)) return `${show(BigInt(u.used) - wholeOf(u))} beyond the quota`;
  const reserved = Number(u.reserved) === 0 ? '' : `, and ${show(u.reserved)} reserved ahead`;
  return `${show(u.remaining)} left${reserved}`;
}

// refusedQuota says the quota that refused a request: "100,000 requests a month". most is what the request's record has.
export const refusedQuota = (most: Count, quota: string, meter: string): string =>
  `${amountWords(meter, most)} ${perWindow(quotaParts(quota).unit)}`;
