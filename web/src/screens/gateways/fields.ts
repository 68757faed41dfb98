import type { Schemas } from '../../api/client';
import { quote } from '../../lib/shell';

type Gateway = Schemas['Gateway'];

// The values of the settings form, as text; "" means that a setting is not set.
export type Values = Record<FieldName, string>;

export type FieldName =
  | 'name'
  | 'hostname'
  | 'default'
  | 'key_headers'
  | 'allow_encoded_slashes'
  | 'cut_streams'
  | 'upstream_url'
  | 'timeout'
  | 'upstream_headers'
  | 'max_body_bytes'
  | 'global_sustained'
  | 'global_burst'
  | 'cors_origins'
  | 'cors_methods'
  | 'cors_headers'
  | 'cors_max_age'
  | 'upstream_ca'
  | 'upstream_client_certificate'
  | 'upstream_client_key'
  | 'upstream_connect_timeout'
  | 'upstream_idle_timeout'
  | 'upstream_max_connection_age'
  | 'upstream_max_connections';

export interface FieldSpec {
  name: FieldName;
  label: string;
  hint?: string;
  placeholder?: string;
  kind?: 'area' | 'check' | 'plain'; // otherwise one line in a monospaced font
  flag: string; // of keygate gateways update
}

export const sections: { title: string; text?: string; fields: FieldSpec[] }[] = [
  {
    title: 'Addressing',
    fields: [
      { name: 'name', label: 'Name', kind: 'plain', flag: 'name' },
      { name: 'hostname', label: 'Hostname', hint: 'The host name that leads here. Empty gives a generated one.', flag: 'hostname' },
      {
        name: 'default',
        label: 'Default gateway',
        kind: 'check',
        hint: 'It takes the requests whose host name no gateway has.',
        flag: 'default',
      },
      {
        name: 'key_headers',
        label: 'Key headers',
        hint: 'Request headers that may hold the key, separated by commas. Authorization means its scheme Bearer.',
        placeholder: 'Authorization',
        flag: 'key-header',
      },
      {
        name: 'allow_encoded_slashes',
        label: 'Allow encoded slashes',
        kind: 'check',
        hint: '%2F and %5C are then part of their segment.',
        flag: 'allow-encoded-slashes',
      },
      {
        name: 'cut_streams',
        label: 'Cut streams',
        kind: 'check',
        hint: 'Upgrades, streams and long bodies end within 1 s when their key is revoked, expires or no longer allows them.',
        flag: 'cut-streams',
      },
    ],
  },
  {
    title: 'Upstream',
    fields: [
      {
        name: 'upstream_url',
        label: 'Address',
        hint: 'Another scheme, host or port drops the headers below, and the client certificate.',
        flag: 'upstream-url',
      },
      { name: 'timeout', label: 'Timeout', hint: 'To the response headers, from 1s to 1h.', placeholder: '60s', flag: 'timeout' },
      {
        name: 'upstream_headers',
        label: 'Headers',
        kind: 'area',
        hint: 'Set on every forwarded request, one “Name: value” in a line, at most 16. *** keeps a value that is stored.',
        placeholder: 'X-Api-Token: secret',
        flag: 'upstream-header',
      },
      { name: 'max_body_bytes', label: 'Largest request body', hint: 'In bytes.', flag: 'max-body-bytes' },
    ],
  },
  {
    title: 'Limit of all requests',
    text: 'Across all keys and routes of this gateway.',
    fields: [
      { name: 'global_sustained', label: 'Sustained', placeholder: '1000/s', flag: 'global-rate-limit' },
      { name: 'global_burst', label: 'Burst', placeholder: '2000/s', flag: 'global-burst' },
    ],
  },
  {
    title: 'Browsers (CORS)',
    text: 'With an origin, Keygate answers preflights itself.',
    fields: [
      { name: 'cors_origins', label: 'Origins', hint: 'Separated by commas.', placeholder: 'https://app.example.com', flag: 'cors-origin' },
      { name: 'cors_methods', label: 'Methods', placeholder: 'GET, POST', flag: 'cors-method' },
      { name: 'cors_headers', label: 'Request headers', placeholder: 'Authorization, Content-Type', flag: 'cors-header' },
      { name: 'cors_max_age', label: 'Remembered for', hint: 'In seconds.', placeholder: '600', flag: 'cors-max-age' },
    ],
  },
  {
    title: 'Connections to the upstream',
    text: 'Empty means the default.',
    fields: [
      { name: 'upstream_connect_timeout', label: 'Connect timeout', hint: '100ms to 1m', flag: 'upstream-connect-timeout' },
      { name: 'upstream_idle_timeout', label: 'Idle timeout', hint: '1s to 1h', flag: 'upstream-idle-timeout' },
      {
        name: 'upstream_max_connection_age',
        label: 'Largest age',
        hint: '1s to 24h',
        placeholder: '5m',
        flag: 'upstream-max-connection-age',
      },
      { name: 'upstream_max_connections', label: 'Most connections', hint: '1 to 100000', flag: 'upstream-max-connections' },
      { name: 'upstream_ca', label: 'Root certificates', kind: 'area', hint: 'PEM, in place of those of the system.', flag: 'upstream-ca' },
      { name: 'upstream_client_certificate', label: 'Client certificate', kind: 'area', hint: 'PEM', flag: 'upstream-client-certificate' },
      {
        name: 'upstream_client_key',
        label: 'Key of the client certificate',
        kind: 'area',
        hint: 'PEM. *** keeps the one that is stored.',
        flag: 'upstream-client-key',
      },
    ],
  },
];

export const labelOf = (name: string): string => sections.flatMap((s) => s.fields).find((f) => f.name === name)?.label ?? name;

// exact reads an integer of any size.
const exact = (digits: string) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));
const list = (text: string) =>
  text
    .split(',')
    .map((t) => t.trim())
    .filter(Boolean);
const text = (v: unknown): string => (v === null || v === undefined ? '' : String(v));

export function valuesOf(g: Gateway): Values {
  const optional = g as unknown as Record<string, unknown>;
  return {
    name: g.name,
    hostname: g.hostname,
    default: String(g.default),
    key_headers: g.key_headers.join(', '),
    allow_encoded_slashes: String(g.allow_encoded_slashes),
    cut_streams: String(g.cut_streams),
    upstream_url: g.upstream_url,
    timeout: g.timeout,
    upstream_headers: Object.entries(g.upstream_headers)
      .map(([k, v]) => `${k}: ${v}`)
      .join('\n'),
    max_body_bytes: text(g.max_body_bytes),
    global_sustained: text(g.global_rate_limit?.sustained),
    global_burst: text(g.global_rate_limit?.burst),
    cors_origins: text(g.cors?.origins.join(', ')),
    cors_methods: text(g.cors?.methods.join(', ')),
    cors_headers: text(g.cors?.headers.join(', ')),
    cors_max_age: text(g.cors?.max_age),
    upstream_ca: text(optional.upstream_ca),
    upstream_client_certificate: text(g.upstream_client_certificate),
    upstream_client_key: text(g.upstream_client_key),
    upstream_connect_timeout: text(g.upstream_connect_timeout),
    upstream_idle_timeout: text(g.upstream_idle_timeout),
    upstream_max_connection_age: text(g.upstream_max_connection_age),
    upstream_max_connections: text(g.upstream_max_connections),
  };
}

// bodyOf returns what PATCH takes for the fields that were touched. A number that is none is sent as it is,
// so that the server names it.
export function bodyOf(changes: Partial<Values>, values: Values): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  const number = (v: string) => (v.trim() === '' ? null : /^\d+$/.test(v.trim()) ? exact(v.trim()) : v);
  for (const [name, v] of Object.entries(changes) as [FieldName, string][]) {
    if (name.startsWith('global_')) {
      body.global_rate_limit =
        values.global_sustained || values.global_burst
          ? {
              ...(values.global_sustained && { sustained: values.global_sustained.trim() }),
              ...(values.global_burst && { burst: values.global_burst.trim() }),
            }
          : null;
    } else if (name.startsWith('cors_')) {
      // Emptying the origins ends it. Other fields without an origin are sent, so that the server names it.
      const none =
        values.cors_origins.trim() === '' &&
        ('cors_origins' in changes || !(values.cors_methods || values.cors_headers || values.cors_max_age).trim());
      body.cors = none
        ? null
        : {
            origins: list(values.cors_origins),
            ...(values.cors_methods && { methods: list(values.cors_methods) }),
            ...(values.cors_headers && { headers: list(values.cors_headers) }),
            ...(values.cors_max_age && { max_age: number(values.cors_max_age) }),
          };
    } else if (name === 'default' || name === 'allow_encoded_slashes' || name === 'cut_streams') body[name] = v === 'true';
    else if (name === 'key_headers') body[name] = v.trim() === '' ? null : list(v);
    else if (name === 'max_body_bytes' || name === 'upstream_max_connections') body[name] = number(v);
    else if (name === 'upstream_headers') body[name] = headersOf(v);
    else body[name] = v.trim() === '' && name !== 'name' && name !== 'upstream_url' ? null : v.trim();
  }
  return body;
}

function headersOf(lines: string): Record<string, string> | null {
  const pairs = lines
    .split('\n')
    .filter((l) => l.trim() !== '')
    .map((l): [string, string] => {
      const i = l.indexOf(':');
      return i < 0 ? [l.trim(), ''] : [l.slice(0, i).trim(), l.slice(i + 1).trim()];
    });
  return pairs.length ? Object.fromEntries(pairs) : null;
}

// matches reports whether an error of a field of the API belongs to a field of the form.
export function matches(name: FieldName, field: string): boolean {
  if (name.startsWith('global_'))
    return field === `global_rate_limit.${name.slice(7)}` || (name === 'global_sustained' && field === 'global_rate_limit');
  if (name.startsWith('cors_')) return field.startsWith(`cors.${name.slice(5)}`) || (name === 'cors_origins' && field === 'cors');
  return field === name || field.startsWith(`${name}.`) || field.startsWith(`${name}[`);
}

// maskSecrets returns a body as it may be shown: a value that was typed for a header or a key is not in it.
export function maskSecrets(body: Record<string, unknown>): Record<string, unknown> {
  const mask = (v: unknown) => (typeof v === 'string' && v !== '***' ? '…' : v);
  const headers = body.upstream_headers;
  return {
    ...body,
    ...(headers !== null &&
      typeof headers === 'object' && { upstream_headers: Object.fromEntries(Object.entries(headers).map(([k, v]) => [k, mask(v)])) }),
    ...('upstream_client_key' in body && { upstream_client_key: mask(body.upstream_client_key) }),
  };
}

// flagsOf returns the flags of "keygate gateways update" for the fields that were touched.
export function flagsOf(changes: Partial<Values>, values: Values): string[] {
  const cors = Object.keys(changes).some((n) => n.startsWith('cors_'));
  return sections
    .flatMap((s) => s.fields)
    .flatMap((f) => {
      const v = values[f.name];
      // The flags of CORS go together.
      if (f.name.startsWith('cors_') ? !cors || (v === '' && !(f.name in changes)) : !(f.name in changes)) return [];
      if (f.name === 'upstream_headers') return v.trim() === '' ? [`--${f.flag} ''`] : ['--upstream-headers-file FILE'];
      if (f.kind === 'area') return [`--${f.flag} ${v.trim() === '' ? "''" : 'FILE'}`];
      if (f.kind === 'check') return [`--${f.flag}=${v}`];
      if (f.name === 'key_headers' || (f.name.startsWith('cors_') && f.name !== 'cors_max_age'))
        return v.trim() === '' ? [`--${f.flag} ''`] : list(v).map((i) => `--${f.flag} ${quote(i)}`);
      return [`--${f.flag} ${quote(v)}`];
    });
}
