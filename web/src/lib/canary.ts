import type { Schemas } from '../api/client';
import { count, wholeNumber } from './format';
import { quote } from './shell';

export type Canary = Schemas['Canary'];
export type CanaryState = Canary['state'];
export type Figures = Canary['progress'][number]['next'];
type Side = 'next' | 'other';

// hasEnded reports whether a canary is over: nothing changes it any more.
export const hasEnded = ({ state }: Pick<Canary, 'state'>): boolean => state === 'promoted' || state === 'aborted';

// waitsForPush reports whether a canary has all callers until a push gives its routes its upstream.
export const waitsForPush = ({ state, lines }: Pick<Canary, 'state' | 'lines'>): boolean => state === 'held' && lines.length > 0;

// weightWords says what share of the callers a canary has now.
export const weightWords = ({ weight }: Pick<Canary, 'weight'>): string => (weight === null ? '–' : `${weight} %`);

// stepWords says how far a canary is.
export const stepWords = ({ step, steps }: Pick<Canary, 'step' | 'steps'>): string => `${step} of ${steps.length}`;

// explanationWords returns what was last decided as a sentence. One that begins with a code keeps it.
export const explanationWords = ({ explanation: said }: Pick<Canary, 'explanation'>): string =>
  /^\p{Ll}+([ ,:]|$)/u.test(said) ? said.charAt(0).toUpperCase() + said.slice(1) : said;

// abortWords says when a canary is aborted by itself.
export function abortWords({ abort }: Pick<Canary, 'abort'>): string[] {
  const said: string[] = [];
  if (abort.errors)
    said.push(`More than ${abort.errors.more_than} percentage ${abort.errors.more_than === 1 ? 'point' : 'points'} more bad requests`);
  if (abort.latency) said.push(`More than 5 % of the requests slower than ${abort.latency.p95_ratio} times the other side's p95`);
  return said;
}

// CanaryValues are those of the form that starts a canary.
export type CanaryValues = {
  upstream: string;
  which: 'all' | 'some';
  routes: string[]; // identifiers, of some
  steps: string;
  hold: string;
  errors: string; // "" for no such rule
  latency: string; // "" for no such rule
  min_requests: string;
  when_done: 'hold' | 'promote';
};

export const canaryDefaults = { steps: '1, 5, 25, 50', hold: '10m', errors: '1', latency: '', min_requests: '1000' };

// number returns a number that was typed. What is none is returned as it is, so that the server says what is wrong.
const number = (text: string): number | string => (/^-?\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : text.trim());

// stepsOf returns the percentages of a list that was typed, such as "1, 5 %, 25".
export const stepsOf = (text: string): (number | string)[] =>
  text
    .split(/[\s,;%]+/)
    .filter(Boolean)
    .map(number);

// canaryBody returns what the API takes. What is as it is without being said is left out.
export function canaryBody(v: CanaryValues): Record<string, unknown> {
  const changed = (name: keyof typeof canaryDefaults) => v[name].trim() !== canaryDefaults[name];
  return {
    upstream: v.upstream,
    ...(v.which === 'some' && { routes: v.routes }),
    ...(changed('steps') && { steps: stepsOf(v.steps) }),
    ...(changed('hold') && { hold: v.hold.trim() }),
    ...((changed('errors') || changed('latency')) && {
      abort: {
        ...(v.errors.trim() && { errors: { more_than: number(v.errors) } }),
        ...(v.latency.trim() && { latency: { p95_ratio: number(v.latency) } }),
      },
    }),
    ...(changed('min_requests') && { min_requests: wholeNumber(v.min_requests) }),
    ...(v.when_done === 'promote' && { when_done: v.when_done }),
  };
}

const minutes: Record<string, number> = { h: 60, m: 1, s: 1 / 60 };

// leastTime says how long a canary takes if nothing delays it, for steps and a hold that were typed; "" if they are none.
export function leastTime(steps: string, hold: string): string {
  const parts = [...hold.trim().matchAll(/(\d+(?:\.\d+)?)([hms])/g)];
  const list = stepsOf(steps);
  if (parts.length === 0 || parts.map((p) => p[0]).join('') !== hold.trim() || !list.every((s) => typeof s === 'number')) return '';
  const total = Math.round(list.length * parts.reduce((sum, [, n, unit]) => sum + Number(n) * (minutes[unit!] ?? 0), 0));
  return total < 120 ? `${total} min` : `${Number((total / 60).toFixed(1))} h`;
}

// The chance that the true share of a side is ever outside of its bounds, as the judge of canaries has it.
const chances: Record<Side, number> = { next: 0.008, other: 0.002 };

// A Share is the share of bad requests of a side in a step, in percent, with its bounds.
export interface Share {
  of: number;
  lower: number;
  upper: number;
}

// shareOf returns the share of a side; null without requests. Its bounds are those of a confidence sequence with the mixture
// Beta(½, 5), by which the server decides: all q with B(x+½, n−x+5) ÷ B(½, 5) < qˣ(1−q)ⁿ⁻ˣ ÷ a.
export function shareOf(side: Side, { requests, bad }: Pick<Figures, 'requests' | 'bad'>): Share | null {
  const [n, x] = [Number(requests), Number(bad)];
  if (n === 0) return null;
  const needed = logBeta(x + 0.5, n - x + 5) - logBeta(0.5, 5) + Math.log(chances[side]);
  const bound = (end: number): number => {
    if (x / n === end) return end;
    let [inside, outside] = [x / n, end];
    for (let i = 0; i < 48; i++) {
      const q = (inside + outside) / 2;
      if (x * Math.log(q) + (n - x) * Math.log1p(-q) > needed) inside = q;
      else outside = q;
    }
    return outside;
  };
  return { of: (100 * x) / n, lower: 100 * bound(0), upper: 100 * bound(1) };
}

const logBeta = (a: number, b: number): number => logGamma(a) + logGamma(b) - logGamma(a + b);

// logGamma is the logarithm of the gamma function, by Stirling's series at x ≥ 10.
function logGamma(x: number): number {
  let below = 0;
  for (; x < 10; x++) below += Math.log(x);
  const square = 1 / (x * x);
  const series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / x;
  return (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2 + series - below;
}

// abortAbove returns the share of bad requests, in percent, above which the lower bound of next aborts a step; null if no rule
// says one, or nothing is known of the other side.
export function abortAbove({ abort }: Pick<Canary, 'abort'>, other: Share | null): number | null {
  return abort.errors && other && other.upper + abort.errors.more_than < 100 ? other.upper + abort.errors.more_than : null;
}

// niceTop returns the end of a scale that shows values from 0 to the greatest: 1, 2 or 5 times a power of ten.
export function niceTop(greatest: number): number {
  if (greatest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(greatest));
  return ([1, 2, 5].find((f) => f * power >= greatest) ?? 10) * power;
}

// canaryFlags returns the flags of the command line that start the same canary.
export function canaryFlags(v: CanaryValues): string[] {
  const body = canaryBody(v);
  return [
    `--upstream ${quote(v.upstream || 'NAME')}`,
    ...(v.which === 'some' ? v.routes.map((id) => `--route ${id}`) : []),
    ...('steps' in body ? [`--steps ${quote(stepsOf(v.steps).join(','))}`] : []),
    ...('hold' in body ? [`--hold ${quote(v.hold.trim())}`] : []),
    // The command always has such a rule, and no side can fail by more than 100 points more.
    ...('abort' in body ? [`--errors-more-than ${quote(v.errors.trim() || '100')}`] : []),
    ...(v.latency.trim() ? [`--p95-ratio ${quote(v.latency.trim())}`] : []),
    ...('min_requests' in body ? [`--min-requests ${quote(String(body.min_requests))}`] : []),
    ...(v.when_done === 'promote' ? ['--when-done promote'] : []),
  ];
}

// badWords says how many requests of a side were bad.
export const badWords = ({ requests, bad }: Pick<Figures, 'requests' | 'bad'>): string => {
  if (Number(requests) === 0) return '–';
  return `${count(bad)} (${((100 * Number(bad)) / Number(requests)).toFixed(1)} %)`;
};
