import type { Schemas } from '../api/client';
import { parse, stringify } from '../api/json';
import type { Pair } from '../ui/pairs';
import { quote } from './shell';

type Issuer = Schemas['Issuer'];

export const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'EdDSA'];
export const maxRequired = 16; // claims that a token must have
export const maxScopeMap = 100;
export const maxClaimHeaders = 8;

// IssuerValues are an issuer as its form has it; "" means that a field is not set.
export interface IssuerValues extends Record<string, unknown> {
  name: string;
  issuer: string;
  keys: 'discovery' | 'url' | 'given'; // where they come from
  jwks_url: string;
  jwks: string; // JSON
  ca: string;
  audiences: string; // one in each line
  algorithms: string[];
  leeway: string;
  max_lifetime: string;
  typ: string;
  required: Pair[]; // values are JSON, or else texts
  scope_claim: string;
  owner_claim: string;
  plan_claim: string;
  scope_map: Pair[];
  default_scopes: string; // separated by spaces
  prefix: 'default' | 'own' | 'none'; // of owners
  owner_prefix: string; // if it is their own
  claim_headers: Pair[];
  forward_token: boolean;
}

export const newIssuer: IssuerValues = {
  name: '',
  issuer: '',
  keys: 'discovery',
  jwks_url: '',
  jwks: '',
  ca: '',
  audiences: '',
  algorithms: ['RS256', 'ES256', 'EdDSA'],
  leeway: '60s',
  max_lifetime: '24h',
  typ: '',
  required: [],
  scope_claim: '',
  owner_claim: '',
  plan_claim: '',
  scope_map: [],
  default_scopes: '',
  prefix: 'default',
  owner_prefix: '',
  claim_headers: [],
  forward_token: false,
};

export const labels: { [K in keyof IssuerValues]?: string } = {
  name: 'Name',
  issuer: 'Issuer',
  keys: 'Where its keys come from',
  jwks_url: 'URL of its keys',
  jwks: 'Its keys',
  ca: 'Certificates',
  audiences: 'Audiences',
  algorithms: 'Algorithms',
  leeway: 'Leeway',
  max_lifetime: 'Longest lifetime',
  typ: 'Type',
  required: 'Required claims',
  scope_claim: 'Claim with the scopes',
  owner_claim: 'Claim with the owner',
  plan_claim: 'Claim with the plan',
  scope_map: 'Scopes of words',
  default_scopes: 'Default scopes',
  prefix: 'Prefix of owners',
  owner_prefix: 'Prefix',
  claim_headers: 'Headers with claims',
  forward_token: 'Forward the token',
};

// keysOf says where the keys of an issuer come from.
export const keysOf = (i: Pick<Issuer, 'jwks' | 'jwks_url'>): IssuerValues['keys'] => (i.jwks ? 'given' : i.jwks_url ? 'url' : 'discovery');

function prefixOf(i: Issuer): Pick<IssuerValues, 'prefix' | 'owner_prefix'> {
  if (i.owner_prefix === `${i.name}/`) return { prefix: 'default', owner_prefix: '' };
  return i.owner_prefix === '' ? { prefix: 'none', owner_prefix: '' } : { prefix: 'own', owner_prefix: i.owner_prefix };
}

// valuesOf returns an issuer as its form has it.
export const valuesOf = (i: Issuer): IssuerValues => ({
  name: i.name,
  issuer: i.issuer,
  keys: keysOf(i),
  jwks_url: i.jwks_url ?? '',
  jwks: i.jwks ? stringify(i.jwks, 2) : '',
  ca: i.ca ?? '',
  audiences: i.audiences.join('\n'),
  algorithms: algorithms.filter((a) => i.algorithms.includes(a)),
  leeway: i.leeway,
  max_lifetime: i.max_lifetime,
  typ: i.typ ?? '',
  required: Object.entries(i.required).map(([claim, value]): Pair => [claim, claimText(value)]),
  scope_claim: i.claims.scope ?? '',
  owner_claim: i.claims.owner ?? '',
  plan_claim: i.claims.plan ?? '',
  scope_map: Object.entries(i.scope_map),
  default_scopes: (i.default_scopes ?? []).join(' '),
  ...prefixOf(i),
  claim_headers: Object.entries(i.claim_headers),
  forward_token: i.forward_token,
});

// jsonOf reads JSON. It is undefined for a text that is none.
function jsonOf(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

// claimText is the value of a required claim as one types it: JSON, or a text that is no JSON as it is.
export const claimText = (value: unknown): string =>
  typeof value === 'string' && value.trim() === value && value !== '' && jsonOf(value) === undefined ? value : stringify(value);

const claimValue = (text: string): unknown => jsonOf(text) ?? (text.trim() === 'null' ? null : text.trim());

const lines = (text: string) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);
const record = (pairs: Pair[]): Record<string, string> =>
  Object.fromEntries(pairs.map(([name, value]): Pair => [name.trim(), value.trim()]).filter(([name, value]) => name || value));

// What a call takes for each field of the API, and which of the form it depends on.
const fields: Record<string, { of: (keyof IssuerValues)[]; value: (v: IssuerValues) => unknown; default: unknown }> = {
  name: { of: ['name'], value: (v) => v.name.trim(), default: undefined },
  issuer: { of: ['issuer'], value: (v) => v.issuer.trim(), default: undefined },
  jwks_url: { of: ['keys', 'jwks_url'], value: (v) => (v.keys === 'url' ? v.jwks_url.trim() : null), default: null },
  jwks: { of: ['keys', 'jwks'], value: (v) => (v.keys === 'given' ? (jsonOf(v.jwks) ?? v.jwks) : null), default: null },
  ca: { of: ['ca'], value: (v) => (v.ca.trim() ? v.ca : null), default: null },
  audiences: { of: ['audiences'], value: (v) => lines(v.audiences), default: undefined },
  algorithms: { of: ['algorithms'], value: (v) => v.algorithms, default: newIssuer.algorithms },
  leeway: { of: ['leeway'], value: (v) => v.leeway.trim() || null, default: newIssuer.leeway },
  max_lifetime: { of: ['max_lifetime'], value: (v) => v.max_lifetime.trim() || null, default: newIssuer.max_lifetime },
  typ: { of: ['typ'], value: (v) => v.typ.trim() || null, default: null },
  required: {
    of: ['required'],
    value: (v) => Object.fromEntries(Object.entries(record(v.required)).map(([claim, text]) => [claim, claimValue(text)])),
    default: {},
  },
  claims: {
    of: ['scope_claim', 'owner_claim', 'plan_claim'],
    value: (v) => {
      const named = { scope: v.scope_claim.trim(), owner: v.owner_claim.trim(), plan: v.plan_claim.trim() };
      return Object.fromEntries(Object.entries(named).filter(([, claim]) => claim !== ''));
    },
    default: {},
  },
  scope_map: { of: ['scope_map'], value: (v) => record(v.scope_map), default: {} },
  default_scopes: { of: ['default_scopes'], value: (v) => (v.default_scopes.trim() ? words(v.default_scopes) : null), default: null },
  owner_prefix: {
    of: ['prefix', 'owner_prefix'],
    value: (v) => ({ default: null, own: v.owner_prefix, none: '' })[v.prefix],
    default: null,
  },
  claim_headers: { of: ['claim_headers'], value: (v) => record(v.claim_headers), default: {} },
  forward_token: { of: ['forward_token'], value: (v) => v.forward_token, default: false },
};

// createBody returns what a call takes for a new issuer, without what is the default.
export const createBody = (v: IssuerValues): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(fields)
      .map(([name, f]) => [name, f.value(v), f.default] as const)
      .filter(([, value, none]) => stringify(value) !== stringify(none ?? null) && value !== null),
  );

// updateBody returns what PATCH takes for the fields that were touched. An address of keys and keys that are given exclude each
// other: one that is set before, and is not any more, is taken away.
export function updateBody(changes: Partial<IssuerValues>, v: IssuerValues, base: Issuer): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([name, f]) => f.of.some((n) => n in changes) && !((name === 'jwks' || name === 'jwks_url') && !f.value(v) && !base[name]))
      .map(([name, f]) => [name, f.value(v)]),
  );
}

const files: Record<string, string> = { jwks: 'jwks.json', ca: 'ca.pem' };
const flagNames: Record<string, string> = {
  audiences: 'audience',
  algorithms: 'algorithm',
  default_scopes: 'default-scope',
  claim_headers: 'claim-header',
};

// flagsOf returns the flags of the command line for what a call takes that changes the issuer with a name.
export function flagsOf(body: Record<string, unknown>, issuer: string): string[] {
  return Object.entries(body).flatMap(([name, value]) => {
    const flag = `--${flagNames[name] ?? name.replaceAll('_', '-')}`;
    if (name === 'claims')
      return ['scope', 'owner', 'plan'].map((c) => `--${c}-claim ${quote((value as Record<string, string>)[c] ?? '')}`);
    if (typeof value === 'boolean') return [value ? flag : `${flag}=false`];
    if (name === 'owner_prefix' && value === null) return [`${flag} ${quote(`${issuer}/`)}`];
    if (value === null) return [`${flag} ''`];
    if (name in files) return [`${flag} ${files[name]}`];
    if (Array.isArray(value)) return value.length > 0 ? value.map((v) => `${flag} ${quote(String(v))}`) : [`${flag} ''`];
    if (typeof value === 'object') {
      const pairs = Object.entries(value).map(([k, v]) => `${flag} ${quote(`${k}=${name === 'required' ? claimText(v) : String(v)}`)}`);
      return pairs.length > 0 ? pairs : [`${flag} ''`];
    }
    return [`${flag} ${quote(String(value))}`];
  });
}

// createFlags is flagsOf for a new issuer, whose name is no flag.
export function createFlags({ name, claims, ...body }: Record<string, unknown>): string[] {
  const named = Object.entries((claims ?? {}) as Record<string, string>).map(([c, claim]) => `--${c}-claim ${quote(claim)}`);
  return [...flagsOf(body, String(name)), ...named];
}

// issuerFile is a configuration file with the issuer. JSON is YAML.
export const issuerFile = (v: IssuerValues): string => {
  const settings = Object.entries(createBody(v)).map(([name, value]) => `${name}: ${stringify(value)}`);
  return `issuers:\n  - ${settings.join('\n    ')}\n`;
};

// show is a value of the form as text.
export function show(value: unknown): string {
  if (!Array.isArray(value)) return String(value) || 'empty';
  return value.map((one) => (Array.isArray(one) ? one.join('=') : String(one))).join(', ') || 'empty';
}

// A Decoded is what a token says of itself, which nobody has verified.
export interface Decoded {
  header: unknown;
  claims: unknown;
}

// decode reads a token in the browser. It is null for a text that is none.
export function decode(token: string): Decoded | null {
  const parts = token.trim().split('.');
  if (parts.length !== 3) return null;
  const [header, claims] = parts.slice(0, 2).map((part) => {
    try {
      const bytes = Uint8Array.from(atob(part.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
      return parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    } catch {
      return undefined;
    }
  });
  const isObject = (v: unknown) => typeof v === 'object' && v !== null && !Array.isArray(v);
  return isObject(header) && isObject(claims) ? { header, claims } : null;
}
