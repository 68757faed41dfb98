import type { Schemas } from '../api/client';
import { count, plural, wholeNumber } from './format';
import { upstreamSettings, type Values } from './settings';
import { quote } from './shell';

type Upstream = Schemas['Upstream'];
type Target = Schemas['Target'];
export type Resolve = Target['resolve'];

export const defaultUpstream = 'default'; // the upstream of routes that name none
export const maxTargets = 256; // of an upstream
export const maxUpstreams = 64; // of a gateway

// isPlain reports whether upstreams are what a gateway with one address has: no more than one target that takes part, whose name is
// looked up at each connect.
export const isPlain = (list: Pick<Upstream, 'targets'>[]): boolean =>
  list.length === 1 && list[0]!.targets.length === 1 && !list[0]!.targets[0]!.drain && !looksUp(list[0]!.targets[0]!);

// looksUp reports whether the addresses of a target are looked up again and again.
export const looksUp = (t: { resolve: Resolve }): boolean => t.resolve !== 'none';

// A TargetDraft is a target as its form has it.
export interface TargetDraft {
  url: string;
  weight: string; // "" for 1
  backup: boolean;
  drain: boolean;
  resolve: Resolve;
}

export const newTarget: TargetDraft = { url: '', weight: '1', backup: false, drain: false, resolve: 'none' };

export const targetDraft = (t: Target): TargetDraft => ({ ...t, weight: String(t.weight) });

// targetBody returns what a call takes for a target, without what is the default.
export const targetBody = ({ url, weight, backup, drain, resolve }: TargetDraft) => ({
  url: url.trim(),
  ...(!['', '1'].includes(weight.trim()) && { weight: wholeNumber(weight) }),
  ...(backup && { backup }),
  ...(drain && { drain }),
  ...(looksUp({ resolve }) && { resolve }),
});

// targetFlag is the value of --target.
export const targetFlag = (t: TargetDraft): string => {
  const { url, weight, backup, drain, resolve } = targetBody(t);
  return [url || 'URL', weight !== undefined && `weight=${weight}`, backup && 'backup', drain && 'drain', resolve && `resolve=${resolve}`]
    .filter(Boolean)
    .join(',');
};

// UpstreamValues are those of the form of an upstream: the targets, and its settings by path.
export type UpstreamValues = Record<string, string | TargetDraft[]> & { targets: TargetDraft[] };

function textsOf(v: Partial<UpstreamValues>): Values {
  const { targets: _, ...texts } = v;
  return texts as Values;
}

// upstreamValues returns the values of a record; those of a new upstream, without a record.
export const upstreamValues = (u?: Upstream): UpstreamValues =>
  Object.assign(upstreamSettings.valuesOf(u) as Record<string, string | TargetDraft[]>, {
    targets: u ? u.targets.map(targetDraft) : [newTarget],
  });

// isShown reports whether a setting of the form has an effect: hash_on only with balance hash, and refresh only if names are looked up.
export const isShown = (path: string, v: UpstreamValues): boolean =>
  path === 'hash_on' ? isHashed(v) : path !== 'refresh' || v.targets.some(looksUp);

// isHashed reports whether an upstream chooses its targets by hash_on.
export const isHashed = (v: UpstreamValues): boolean => v.balance === 'hash';

// touched returns the settings that were touched and are sent: hash_on is part of the balance hash alone.
function touched(changes: Partial<UpstreamValues>, values: UpstreamValues): Values {
  const { hash_on, ...others } = textsOf(changes);
  return isHashed(values) && hash_on !== undefined ? { ...others, hash_on } : others;
}

// upstreamBody returns what PUT and PATCH take for what was touched.
export const upstreamBody = (changes: Partial<UpstreamValues>, values: UpstreamValues): Record<string, unknown> => ({
  ...(changes.targets && { targets: changes.targets.map(targetBody) }),
  ...upstreamSettings.bodyOf(touched(changes, values), textsOf(values)),
});

// upstreamFlags returns the flags of "keygate upstreams set" for what was touched.
export const upstreamFlags = (changes: Partial<UpstreamValues>, values: UpstreamValues): string[] => [
  ...(changes.targets ?? []).map((t) => `--target ${quote(targetFlag(t))}`),
  ...upstreamSettings.flagsOf(touched(changes, values), textsOf(values)),
];

// showValue says a value of the form, for a conflict.
export const showValue = (value: string | TargetDraft[]): string =>
  typeof value === 'string' ? value || 'empty' : value.map(targetFlag).join(' ');

// upstreamCommand is the begin of a command on an upstream or its targets.
export const upstreamCommand = (words: string, gatewayId: string, upstream: string): string =>
  `keygate ${words} --gateway ${gatewayId}${upstream === defaultUpstream ? '' : ` --upstream ${upstream}`}`;

// addressOf returns the host and port of a URL as they are written, which is what reports call its target.
export const addressOf = (url: string): string => url.replace(/^[a-z0-9]+:\/\//i, '').replace(/[/?#].*$/, '');

const partOf = (t: Target): string => (t.drain ? 'draining' : t.backup ? 'backup' : '');

// targetsWords says targets in a few words: "http://10.0.0.1:3000, http://10.0.0.2:3000 (draining)".
export const targetsWords = (targets: Target[]): string => targets.map((t) => `${t.url}${partOf(t) && ` (${partOf(t)})`}`).join(', ');

// countWords says how much a gateway has: "3 targets in 2 upstreams".
export function countWords(list: Pick<Upstream, 'targets'>[]): string {
  const targets = plural(
    list.reduce((n, u) => n + u.targets.length, 0),
    'target',
  );
  return list.length === 1 ? targets : `${targets} in ${plural(list.length, 'upstream')}`;
}

// balances are the ways to choose a target, in words.
export const balances: Record<Upstream['balance'], string> = {
  least_requests: 'Fewest requests in flight',
  round_robin: 'One after the other',
  hash: 'By a hash',
};

// balanceWords says how an upstream chooses its targets.
export const balanceWords = (u: Pick<Upstream, 'balance' | 'hash_on'>): string =>
  `${balances[u.balance]}${u.hash_on ? ` of ${u.hash_on}` : ''}`;

function ejectionWords({ ejection: e }: Upstream): string {
  if (e === false) return 'Off';
  return `After ${plural(e.failures, 'failure')} in a row (${e.on.join(', ')}), for ${e.base}, at most ${e.max}`;
}

function retriesWords({ retries: r }: Upstream): string {
  if (Number(r.attempts) === 0) return 'None';
  const after = r.on.length > 0 ? `after ${r.on.join(', ')}` : 'of requests that no target has received';
  return `${count(r.attempts)} ${after}, at most ${r.budget_percent} % of the requests${r.idempotency_key ? '; also of POST and PATCH with Idempotency-Key' : ''}`;
}

// checkWords says how targets are checked: "GET /healthz each 10s, good is 200-399; out after 2 bad ones, in after 2 good ones".
function checkWords({ health: h }: Upstream): string {
  if (!h) return 'None';
  const kind = h.tcp ? 'A connection' : h.path !== null ? `GET ${h.path}` : `gRPC health of ${h.grpc || 'the server'}`;
  const headers = Object.keys(h.headers).length > 0 ? `, with ${Object.keys(h.headers).join(', ')}` : '';
  const good = h.statuses ? `, good is ${h.statuses}` : '';
  return `${kind} each ${h.interval}, within ${h.timeout}${headers}${good}; out after ${count(h.unhealthy)} bad, in after ${count(h.healthy)} good`;
}

// healthHeaders returns the headers of checks that a new target gives again; undefined if there are none.
export function healthHeaders(lines: string): { headers: Record<string, string> } | undefined {
  if (lines.trim() === '') return undefined;
  const headers = upstreamSettings.bodyOf({ headers: lines }, {}).headers as Record<string, string>;
  return { headers };
}

// settingRows says the settings of an upstream: those that decide about its targets, and others that are set.
export function settingRows(u: Upstream): [name: string, value: string][] {
  const set = upstreamSettings.sections.flatMap((s) =>
    s.fields.filter((f) => !f.setting.parts && f.path !== 'balance' && f.path !== 'hash_on'),
  );
  const values = upstreamSettings.valuesOf(u);
  return [
    ['Balance', balanceWords(u)],
    ['Checks', checkWords(u)],
    ['Ejection', ejectionWords(u)],
    ['Retries', retriesWords(u)],
    ...set
      .filter((f) => values[f.path] && (f.path !== 'refresh' || u.targets.some(looksUp)))
      .map((f): [string, string] => {
        if (f.kind === 'headers') return [f.label, Object.keys(u.headers).join(', ')];
        return [f.label, f.kind === 'certificate' || f.kind === 'key' ? 'given' : (values[f.path] ?? '')];
      }),
  ];
}
