import type { Schemas } from '../api/client';
import type { Calendar } from './calendar';
import { count, size, wholeBytes, wholeNumber } from './format';
import { spellInFlight, spellLimit } from './limit';
import { defaultWarnAt, percentages, quotaParts, spellQuota } from './quota';
import { quote } from './shell';
import { isBytes, meterProblem } from './usage';

type Plan = Schemas['Plan'];
type Limit = Plan['limits'][number];

export const maxLimits = 8; // of a plan

// A LimitDraft is a limit of a plan as its form has it; "" means that a field is not set. What a limit of its kind does not
// have is kept, and not sent.
export interface LimitDraft {
  name: string;
  kind: 'rate' | 'quota' | 'concurrency';
  meter: string;
  sustained: string;
  burst: string;
  most: string; // units of a window of a quota
  unit: string; // its window
  overage: string;
  warn_at: string; // percentages; none for ""
  in_flight: string; // how many requests may be in flight
  per: string;
  gateway_id: string;
  routes: string; // a path in each line
}

export const newLimit = (name = ''): LimitDraft => ({
  name,
  kind: 'rate',
  meter: 'requests',
  sustained: '',
  burst: '',
  most: '',
  unit: 'month',
  overage: 'refuse',
  warn_at: defaultWarnAt.join(', '),
  in_flight: '',
  per: 'key',
  gateway_id: '',
  routes: '',
});

const usualNames = { rate: 'per-minute', quota: 'per-month', concurrency: 'parallel' };

// ofKind returns what is to change in a limit that becomes one of another kind: the name as well, if it is the usual one.
export const ofKind = (before: LimitDraft, kind: LimitDraft['kind']): Partial<LimitDraft> =>
  before.name === usualNames[before.kind] ? { kind, name: usualNames[kind] } : { kind };

// draftOf returns a limit as its form has it.
export const draftOf = (l: Limit): LimitDraft => ({
  ...newLimit(l.name),
  meter: l.meter,
  ...kindDraft(l),
  per: l.per,
  gateway_id: l.gateway_id ?? '',
  routes: l.routes.join('\n'),
});

// typed returns an amount, or a rate, as one types it: bytes with a unit, if that is exact.
function typed(amount: string | null, meter: string): string {
  if (!isBytes(meter)) return amount ?? '';
  return (amount ?? '').replace(/^\d+/, (n) => size(BigInt(n)).replace(/ bytes?$/, ''));
}

function kindDraft(l: Limit): Partial<LimitDraft> {
  if (l.quota) return quotaDraft({ ...l, quota: l.quota });
  if (l.concurrency !== null) return { kind: 'concurrency', in_flight: String(l.concurrency) };
  return { sustained: typed(l.sustained, l.meter), burst: typed(l.burst, l.meter) };
}

const quotaDraft = (l: Limit & { quota: string }) => ({
  kind: 'quota' as const,
  ...quotaParts(l.quota),
  most: typed(quotaParts(l.quota).most, l.meter),
  overage: l.overage ?? 'refuse',
  warn_at: (l.warn_at ?? []).join(', '),
});

const lines = (text: string) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);

interface Body {
  sustained?: string;
  burst?: string;
  quota?: string;
  concurrency?: number | bigint | string;
  meter?: string;
  overage?: string;
  warn_at?: (number | string)[];
}

// rateOf returns a rate that was typed as a call takes it.
function rateOf(text: string, meter: string): string {
  const [, amount = '', unit = ''] = /^(.*)\/(.*)$/.exec(text.trim()) ?? [];
  return isBytes(meter) && unit ? `${wholeBytes(amount)}/${unit.trim()}` : text.trim();
}

// unitsTyped returns units that were typed as a call takes them.
export const unitsTyped = (text: string, meter: string) => (isBytes(meter) ? wholeBytes(text) : wholeNumber(text));

// exactBytes returns how many bytes were typed with a unit, also as a rate; "" if there is nothing more to say.
export function exactBytes(text: string, meter: string): string {
  const amount = text.replace(/\/.*/, '');
  const n = isBytes(meter) && /[a-z]/i.test(amount) ? wholeBytes(amount) : '';
  return typeof n === 'string' ? '' : count(n);
}

const meterBody = ({ meter }: LimitDraft): Body => (meter === 'requests' ? {} : { meter });

const rateBody = (d: LimitDraft): Body => ({
  ...(d.sustained.trim() ? { sustained: rateOf(d.sustained, d.meter) } : {}),
  ...(d.burst.trim() ? { burst: rateOf(d.burst, d.meter) } : {}),
  ...meterBody(d),
});

function quotaBody(d: LimitDraft): Body {
  const warnAt = percentages(d.warn_at);
  return {
    quota: `${unitsTyped(d.most, d.meter)}/${d.unit}`,
    ...meterBody(d),
    ...(d.overage === 'refuse' ? {} : { overage: d.overage }),
    ...(warnAt.join() === defaultWarnAt.join() ? {} : { warn_at: warnAt }),
  };
}

const bodyOf: Record<LimitDraft['kind'], (d: LimitDraft) => Body> = {
  rate: rateBody,
  quota: quotaBody,
  concurrency: (d) => ({ concurrency: wholeNumber(d.in_flight) }),
};

// limitBody returns what a call takes for a limit, without what is the default of a quota. Routes are left out without a
// gateway: the form does not show them.
export const limitBody = (d: LimitDraft) => ({
  name: d.name.trim(),
  ...bodyOf[d.kind](d),
  per: d.per,
  ...(d.gateway_id ? { gateway_id: d.gateway_id } : {}),
  ...(d.gateway_id && lines(d.routes).length > 0 ? { routes: lines(d.routes) } : {}),
});

export type LimitBody = ReturnType<typeof limitBody>;

// isWhole reports whether a limit has all that it needs.
export const isWhole = (l: LimitBody): boolean =>
  Boolean(l.name && !meterProblem(l.meter ?? 'requests') && (l.sustained || l.concurrency || (l.quota && quotaParts(l.quota).most)));

// amountOf says in words how much a limit lets through: "600 per minute, 50 at once", or "10 GiB of responses a month", or "5 requests in
// flight".
export function amountOf({
  sustained,
  burst,
  quota,
  concurrency,
  meter,
}: Pick<Limit, 'sustained' | 'burst' | 'quota' | 'concurrency' | 'meter'>): string {
  if (quota) return spellQuota(quota, meter);
  if (concurrency !== null) return spellInFlight(concurrency);
  return spellLimit({ sustained: sustained ?? '', burst: burst ?? '', daily: '' }, meter);
}

// limitWords says a limit in a few words: "600 per minute per owner".
export const limitWords = (l: Limit): string =>
  `${amountOf(l)} ${l.per === 'owner' ? 'per owner' : 'per key'}${l.overage === 'allow' ? ', more is allowed' : ''}`;

// planWords says the limits of a plan in a few words.
export const planWords = (limits: Limit[]): string => limits.map(limitWords).join('; ') || 'no limits';

// A Placed is a limit that applies to the keys of an owner, or to one key, and where it comes from. If that is the
// default plan of a gateway, it applies there only.
export interface Placed {
  limit: Limit;
  plan: Plan;
  from: 'key' | 'owner' | 'gateway';
  gatewayId: string | null; // where it applies; null for all gateways
}

// A Source is a plan, where it comes from, and the gateway on which it applies.
type Source = Pick<Placed, 'plan' | 'from' | 'gatewayId'>;

// applying returns the limits of plans that apply (plans.md, section 3). Those per owner are of the owner's plan, else of
// each gateway's default plan, and never of the key's. Those per key are of the first plan there is of the key's, the
// owner's and the gateway's, even if it has none.
export function applying({
  keyPlan,
  ownerPlan,
  gateways,
}: {
  keyPlan?: Plan;
  ownerPlan?: Plan;
  gateways: { gateway_id: string; plan?: Plan }[]; // those that the key works on
}): Placed[] {
  const defaults = gateways.flatMap((g): Source[] => (g.plan ? [{ plan: g.plan, from: 'gateway', gatewayId: g.gateway_id }] : []));
  const everywhere = (plan: Plan | undefined, from: Source['from']): Source[] | undefined => plan && [{ plan, from, gatewayId: null }];
  const sources = {
    owner: everywhere(ownerPlan, 'owner') ?? defaults,
    key: everywhere(keyPlan, 'key') ?? everywhere(ownerPlan, 'owner') ?? defaults,
  };
  return (['owner', 'key'] as const).flatMap((per) =>
    sources[per].flatMap((s) =>
      s.plan.limits
        .filter((l) => l.per === per && (s.gatewayId === null || l.gateway_id === null || l.gateway_id === s.gatewayId))
        .map((limit) => ({ ...s, limit, gatewayId: s.gatewayId ?? limit.gateway_id })),
    ),
  );
}

// planAndLimit splits the name of a limit in a 429: neither name has a dot.
export function planAndLimit(name: string): { plan: string; limit: string } {
  const dot = name.indexOf('.');
  return { plan: name.slice(0, dot), limit: name.slice(dot + 1) };
}

// amountFlag is how much a limit lets through, in the form of --limit.
function amountFlag({ quota, concurrency, sustained }: LimitBody): string {
  if (quota) return `quota:${quota}`;
  return concurrency === undefined ? (sustained ?? 'RATE') : `concurrency:${concurrency || 'COUNT'}`;
}

// limitFlags are the flags of "keygate plans" for limits.
export function limitFlags(limits: LimitBody[]): string[] {
  return limits.map((l) => {
    const parts = [
      `${l.name || 'NAME'}=${amountFlag(l)}`,
      l.burst && `burst=${l.burst}`,
      l.meter && `meter=${l.meter}`,
      l.overage && `overage=${l.overage}`,
      l.warn_at && `warn-at=${l.warn_at.join(',') || 'none'}`,
      l.per !== 'key' && `per=${l.per}`,
      l.gateway_id && `gateway=${l.gateway_id}`,
      ...(l.routes ?? []).map((r) => `route=${r}`),
    ];
    return `--limit ${quote(parts.filter(Boolean).join(','))}`;
  });
}

// plain are texts that YAML reads as a string without quotes: names and rates.
const plain = (text: string) => /^(\d+\/)?[a-z][a-z0-9_-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/.test(text);
const yaml = (value: number | bigint | string) =>
  typeof value !== 'string' ? String(value) : plain(value) ? value : JSON.stringify(value);

// planFile returns a plan as a configuration file has it, which names gateways, as nameOf does.
export function planFile(
  { name, title, time_zone, anchor_day }: { name: string; title: string } & Calendar,
  limits: LimitBody[],
  nameOf: (gatewayId: string) => string,
): string {
  const one = ({ gateway_id, routes, ...l }: LimitBody) =>
    Object.entries({ ...l, ...(gateway_id ? { gateway: nameOf(gateway_id) } : {}), ...(routes ? { routes } : {}) }).map(
      ([k, v], i) => `      ${i === 0 ? '- ' : '  '}${k}: ${Array.isArray(v) ? `[${v.map(yaml).join(', ')}]` : yaml(v)}`,
    );
  return [
    'plans:',
    `  - name: ${yaml(name || 'NAME')}`,
    ...(title ? [`    title: ${yaml(title)}`] : []),
    ...(time_zone && time_zone !== 'UTC' ? [`    time_zone: ${time_zone}`] : []),
    ...(anchor_day && anchor_day !== '1' ? [`    anchor_day: ${anchor_day}`] : []),
    limits.length === 0 ? '    limits: []' : '    limits:',
    ...limits.flatMap(one),
    '',
  ].join('\n');
}
