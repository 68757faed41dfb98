import type { Schemas } from '../../api/client';
import { costWords } from '../../lib/cost';
import { planAndLimit } from '../../lib/plan';
import { count, plural } from '../../lib/format';
import { spellInFlight } from '../../lib/limit';
import { refusedQuota } from '../../lib/quota';
import { amountWords, exactly } from '../../lib/usage';

export type LoggedRequest = Schemas['LoggedRequest'];

// Names that the reader knows better than identifiers.
export interface Names {
  gateway?: string;
  route?: string; // path of the route
  rate?: string; // of the limit that refused it, in words
  meter?: string; // what the limit counts, if it is one of a plan
  quota?: string; // how much of it, such as 100000/month, if that limit is a quota
}

// Why an upstream could not be reached or did not respond. The API may add further reasons.
const reasons: Record<string, string> = {
  connection_refused: 'the service behind the gateway refused the connection',
  name_not_found: 'the host name of the service behind the gateway does not exist',
  name_lookup_failed: 'the host name of the service behind the gateway could not be looked up',
  host_unreachable: 'there was no way to the network or machine of the service behind the gateway',
  address_not_allowed: 'the address of the service behind the gateway is not allowed',
  connect_timeout: 'connecting to the service behind the gateway took too long',
  no_free_connection: 'all connections to the service behind the gateway were in use until the timeout',
  no_descriptors: 'the gateway had no room for another connection',
  tls_failed: 'the TLS handshake with the service behind the gateway failed',
  certificate_rejected: 'the TLS certificate of the service behind the gateway was not accepted',
  malformed_response: 'the service behind the gateway sent a malformed response',
  response_too_large: 'the head of the response of the service behind the gateway was too large',
  closed_early: 'the service behind the gateway closed the connection before it responded',
  timeout: 'the service behind the gateway did not respond in time',
  unexpected_upgrade: 'the service behind the gateway changed to a protocol that was not asked for',
  all_drained: 'every target behind the gateway was being drained',
  loop: 'the request had already passed through this gateway: its upstream leads back to it',
  target_gone: 'the target behind the gateway was drained or removed before the request had ended',
};

// keyReasons says what was wrong with a key of which nothing is known.
const keyReasons: Record<string, string> = {
  no_key: 'no key was sent',
  key_without_scheme: 'the key was sent in the header Authorization without “Bearer” before it',
  key_in_other_header: 'the key was sent in a header that the gateway does not read',
  mistyped_key: 'what was sent begins like a key, but was mistyped or cut off',
  not_a_key: 'what was sent does not have the form of a key, which begins with “kg_”',
  address_failed: 'too many requests of the same address had failed to authenticate within a minute',
};

// explain says in one sentence, fit for the caller of the request, what decided it: the check or limit,
// its level then, and when the request would have passed. It has no addresses of upstreams.
export function explain(r: LoggedRequest, names: Names = {}): string {
  const gateway = names.gateway ? ` on the gateway “${clean(names.gateway)}”` : '';
  const began = `The request ${clean(r.method)} ${clean(r.path)}${gateway} at ${moment(r.time)}`;
  if (hasPassed(r)) return `${began} ${ended(r)}${afterAttempts(r)}${charge(r)} (request ${r.request_id}).`;
  const verb = r.status >= 500 ? 'failed' : 'was refused';
  return `${began} ${verb} with status ${r.status} because ${cause(r, names)}${afterAttempts(r)} (request ${r.request_id}).`;
}

// hasPassed reports whether a request is in the log for its cost or its attempts alone: it was neither refused nor failed.
export const hasPassed = ({ cost, attempts, status, decision: { code } }: LoggedRequest): boolean =>
  (cost !== null || attempts !== null) && (code === 'abandoned' || (code === 'upstream_status' && status < 500));

const charge = ({ cost }: LoggedRequest): string => (cost === null ? '' : `, and was charged ${costWords(cost)}`);

// afterAttempts says how many attempts a request had, if there were several.
const afterAttempts = ({ attempts }: LoggedRequest): string =>
  attempts !== null && attempts.length > 1 ? `, after ${attempts.length} attempts` : '';

// ended says how a request ended that was neither refused nor failed.
const ended = ({ status, decision }: LoggedRequest): string =>
  decision.code === 'abandoned' ? 'ended without a response, because the client closed its connection' : `had the status ${status}`;

function cause(r: LoggedRequest, names: Names): string {
  const d = r.decision;
  const key = keyName(r);
  if (d.limit_scope) return limit(r, names);
  switch (d.check) {
    case 'key':
      if (d.code === 'key_expired') return `${key} had expired`;
      if (r.key_id) return `${key} had been revoked`;
      return r.key_prefix
        ? `${key} is not valid here: it is unknown, was revoked more than 24 hours before, or belongs to another account or to the management API`
        : (keyReasons[d.reason ?? ''] ?? 'no key was sent, or what was sent does not have the form of a key');
    case 'owner':
      return `the owner of ${key} was suspended`;
    case 'gateway':
      return `${key} is restricted to another gateway`;
    case 'address':
      return `${addressLists(r)} do not allow the address ${clean(r.client_ip)}`;
    case 'maintenance':
      return 'the gateway was under maintenance';
    case 'scope':
      return `the scope of ${key} does not allow ${clean(r.method)} on this path`;
  }
  if (d.code === 'responded' || d.code === 'redirected')
    return 'its route responds in this way itself, without the service behind the gateway';
  // The message of a reason that was added later may name what only the operator may know.
  if (d.reason) return reasons[d.reason] ?? 'the service behind the gateway could not be reached, or did not respond';
  if (d.upstream_status !== null) return `the service behind the gateway responded with status ${d.upstream_status}`;
  switch (d.code) {
    case 'upstream_unreachable':
      return 'the service behind the gateway could not be reached, or closed the connection before it responded';
    case 'upstream_timeout':
      return reasons.timeout ?? d.message;
    case 'internal':
      return 'the gateway itself failed';
    case 'unavailable':
      return 'the gateway could not handle requests at that time';
  }
  return clean(d.message);
}

// addressLists names the lists of addresses that refused a request.
function addressLists(r: LoggedRequest): string {
  if (r.decision.reason === 'key_addresses') return `the lists of addresses of ${keyName(r)}`;
  if (r.decision.reason === 'route_addresses') return 'the lists of addresses of the route';
  if (r.decision.reason === 'gateway_addresses') return 'the lists of addresses of the gateway';
  return 'the lists of addresses, which were changed meanwhile,';
}

const keyName = (r: LoggedRequest): string => (r.key_prefix ? `the key ${clean(r.key_prefix)}…` : 'the key');

function limit(r: LoggedRequest, names: Names): string {
  const d = r.decision;
  if (isInFlight(r)) return inFlight(r, names);
  const when =
    d.passes_at === null
      ? ''
      : neverPasses(r)
        ? '; it never resets'
        : `; the request would have passed at ${moment(d.passes_at)}${wait(r.time, d.passes_at)}`;
  return `${limitName(r, names)} ${lack(r, names)}${when}`;
}

// isInFlight reports whether a limit of requests in flight refused a request.
export const isInFlight = ({ decision: d }: LoggedRequest): boolean => d.limit_scope === 'concurrency';

// inFlight says that a limit of requests in flight refused a request. When the others would have ended is not known.
function inFlight(r: LoggedRequest, { route }: Names): string {
  const { limit: most, limit_name } = r.decision;
  const of = most === null ? '' : ` of ${count(most)}`;
  if (limit_name === 'key') return `as many requests of ${keyName(r)} were in flight as its limit${of} allows`;
  if (limit_name === 'route') return `as many requests were in flight as the limit${of} of ${routeName(route)} allows`;
  if (!limit_name) return `as many requests were in flight as a limit${of} allows`;
  const { plan, limit: name } = planAndLimit(limit_name);
  return `as many requests were in flight as the limit “${clean(name)}”${most === null ? '' : ` (${count(most)})`} of the plan “${clean(plan)}” allows`;
}

const routeName = (path: string | undefined): string => `the route${path ? ` ${clean(path)}` : ''}`;

// unitsLeft says how much was left of the limit that refused a request.
const unitsLeft = ({ decision: d }: LoggedRequest, { meter = 'requests' }: Names): string => exactly(meter, d.remaining ?? 0);

// lack says how much was left: a request may have needed more than one unit of another meter than requests.
const lack = (r: LoggedRequest, names: Names): string =>
  Number(r.decision.remaining) > 0
    ? `had ${unitsLeft(r, names)} left, less than the request needed`
    : `was used up${r.decision.remaining === null ? '' : ', with 0 left'}`;

// leftThen says what was left of the limit that refused a request.
export function leftThen(r: LoggedRequest, names: Names): string {
  const d = r.decision;
  if (d.remaining === null) return '–';
  if (d.limit_scope === 'concurrency') return d.limit === null ? count(d.remaining) : `${count(d.remaining)} of ${spellInFlight(d.limit)}`;
  const left = Number(d.remaining) > 0 ? unitsLeft(r, names) : '0';
  if (d.limit === null) return left;
  return `${left} of ${d.limit_scope !== 'plan' ? plural(d.limit, 'request') : names.meter ? amountWords(names.meter, d.limit) : count(d.limit)}`;
}

// neverPasses reports whether a quota that never resets refused a request: the API gives it the greatest time there is.
export const neverPasses = ({ decision: d }: LoggedRequest): boolean =>
  d.limit_scope === 'plan' && d.passes_at !== null && Date.parse(d.passes_at) === (2 ** 31 - 1) * 1000;

// isDaily reports whether a daily limit refused a request. That of a key has the scope of the key, and the API tells it
// apart in its message only.
export const isDaily = ({ decision: d }: LoggedRequest): boolean =>
  d.limit_scope === 'daily' || d.message.startsWith("the key's own daily limit");

// limitName names the limit that refused a request. The limit of the server for gateways without one has the scope of a
// gateway's: the API tells it apart in its message only.
export function limitName(r: LoggedRequest, { route, rate, meter, quota }: Names = {}): string {
  const d = r.decision;
  const most = rate ?? (d.limit === null ? '' : plural(d.limit, 'request'));
  const size = most && ` of ${most}`;
  if (d.message.startsWith('the gateway sets no limit')) return `the server’s limit${size} for a gateway that sets none`;
  if (d.limit_scope === 'concurrency') return inFlightName(r, route);
  if (d.limit_scope === 'plan' && d.limit_name) {
    const { plan, limit: name } = planAndLimit(d.limit_name);
    return `the limit “${clean(name)}”${sizeOf(d.limit, meter, quota)} of the plan “${clean(plan)}”`;
  }
  const whose =
    d.limit_scope === 'key'
      ? keyName(r)
      : d.limit_scope === 'global'
        ? 'the whole gateway'
        : d.limit_scope === 'anonymous'
          ? 'each client address on public routes'
          : d.limit_scope === 'self_service'
            ? 'what holders of keys do themselves'
            : routeName(route);
  return `the ${isDaily(r) ? 'daily ' : ''}limit${size} for ${whose}`;
}

// inFlightName names the limit of requests in flight that refused a request.
function inFlightName(r: LoggedRequest, route: string | undefined): string {
  const { limit: most, limit_name } = r.decision;
  const size = ` of ${most === null ? 'requests in flight' : spellInFlight(most)}`;
  if (limit_name === 'key') return `the limit${size} for ${keyName(r)}`;
  if (limit_name === 'route') return `the limit${size} for ${routeName(route)}`;
  if (!limit_name) return `a limit${size}`;
  const { plan, limit: name } = planAndLimit(limit_name);
  return `the limit “${clean(name)}”${size} of the plan “${clean(plan)}”`;
}

// sizeOf says how much a limit of a plan lets through. What it counts is not in the record of a request.
function sizeOf(most: number | null, meter: string | undefined, quota: string | undefined): string {
  if (most === null) return '';
  if (!meter) return ` (${count(most)})`;
  return ` of ${quota ? refusedQuota(most, quota, meter) : amountWords(meter, most)}`;
}

// clean leaves out what would reorder or break the sentence, control characters and marks of direction, and what
// may be a secret: the rest of a key, or of a signing secret, that a client put into a path or that is in a name.
// The server leaves out whole keys; this also covers mistyped ones.
export const clean = (text: string): string =>
  text
    .replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '')
    .replaceAll(/(kga?(?:_|%5f)[0-9a-z]{6})[0-9a-z]{8,}/gi, '$1…')
    .replaceAll(/(whsec(?:_|%5f))[^\s/”]{8,}/gi, '$1…')
    .replaceAll(/\b(eyJ[\w-]{5})[\w.-]{20,}/g, '$1…');

function wait(from: string, to: string): string {
  const seconds = Math.ceil((Date.parse(to) - Date.parse(from)) / 1000);
  if (!(seconds > 0)) return '';
  if (seconds < 120) return `, ${seconds} s later`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `, ${minutes} min later`;
  const hours = Math.round(minutes / 60);
  return hours < 72 ? `, ${hours} h later` : `, ${Math.round(hours / 24)} days later`;
}

// moment is a time to the second, in UTC, since the reader may be anywhere.
function moment(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

// short is the cause in a few words, for a row of a list.
export function short(r: LoggedRequest): string {
  if (hasPassed(r)) return r.cost === null ? `Passed${afterAttempts(r).replace(',', '')}` : `Charged ${costWords(r.cost)}`;
  const text = cause({ ...r, ...(r.decision.limit_scope && { key_prefix: null }) }, {})
    .replace(/; (the request would have passed|it never resets).*$/, '')
    .replaceAll('the service behind the gateway', 'the upstream');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
