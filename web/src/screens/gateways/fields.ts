import type { Schemas } from '../../api/client';
import { groups, type Kind, type Part, type Setting } from '../../api/settings.gen';
import { quote } from '../../lib/shell';

type Gateway = Schemas['Gateway'];

// A Field of the form is a setting, or a part of one.
export interface Field extends Part {
  path: string; // as an error of the API names it: the name of the setting, and of the part after a dot
  setting: Setting;
}

const fieldsOf = (setting: Setting): Field[] =>
  setting.parts?.map((p) => ({ ...p, path: `${setting.name}.${p.name}`, setting })) ?? [{ ...setting, path: setting.name, setting }];

export const sections = groups.map((g) => ({ ...g, fields: g.settings.flatMap(fieldsOf) }));

const settings = groups.flatMap((g) => g.settings);
const fields = settings.flatMap(fieldsOf);

export const labels: Record<string, string> = Object.fromEntries(fields.map((f) => [f.path, f.label]));

// The values of the form, as text, by path; "" means that a setting is not set.
export type Values = Record<string, string>;

// isLong reports whether values of a kind have several lines.
export const isLong = (kind: Kind): boolean => kind === 'headers' || kind === 'certificate' || kind === 'key';

function textOf(kind: Kind, value: unknown): string {
  if (value === null || value === undefined) return '';
  if (kind === 'list') return (value as string[]).join(', ');
  if (kind !== 'headers') return String(value);
  return Object.entries(value)
    .map(([k, v]) => `${k}: ${v}`)
    .join('\n');
}

export function valuesOf(gateway: Gateway): Values {
  const record = gateway as unknown as Record<string, unknown>;
  return Object.fromEntries(
    fields.map((f) => {
      const value = record[f.setting.name];
      return [f.path, textOf(f.kind, f.setting.parts ? (value as Record<string, unknown> | null | undefined)?.[f.name] : value)];
    }),
  );
}

// exact reads an integer of any size.
const exact = (digits: string) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));
const list = (text: string) =>
  text
    .split(',')
    .map((t) => t.trim())
    .filter(Boolean);

function headersOf(lines: string): Record<string, string> {
  const pairs = lines
    .split('\n')
    .filter((l) => l.trim() !== '')
    .map((l): [string, string] => {
      const i = l.indexOf(':');
      return i < 0 ? [l.trim(), ''] : [l.slice(0, i).trim(), l.slice(i + 1).trim()];
    });
  return Object.fromEntries(pairs);
}

// valueOf returns what the API takes for a text that is not empty. A number that is none is sent as it is, so
// that the server names it.
function valueOf(kind: Kind, text: string): unknown {
  const trimmed = text.trim();
  if (kind === 'bool') return text === 'true';
  if (kind === 'count') return /^\d+$/.test(trimmed) ? exact(trimmed) : text;
  if (kind === 'list') return list(text);
  return kind === 'headers' ? headersOf(text) : trimmed;
}

// bodyOf returns what PATCH takes for the fields that were touched.
export function bodyOf(changes: Partial<Values>, values: Values): Record<string, unknown> {
  const text = (f: Field) => changes[f.path] ?? values[f.path] ?? '';
  const empty = (f: Field) => text(f).trim() === '';
  const value = (f: Field) => valueOf(f.kind, text(f));
  const body: Record<string, unknown> = {};
  for (const setting of settings) {
    const own = fieldsOf(setting);
    if (!own.some((f) => f.path in changes)) continue;
    const [first] = own as [Field];
    if (!setting.parts) body[setting.name] = empty(first) && !setting.notNull ? null : value(first);
    // Emptying the origins ends CORS. Other parts without an origin are sent, so that the server names it.
    else if (own.every(empty) || (setting.kind === 'cors' && first.path in changes && empty(first))) body[setting.name] = null;
    else
      body[setting.name] = {
        ...(setting.kind === 'cors' && { origins: [] }),
        ...Object.fromEntries(own.filter((f) => !empty(f)).map((f) => [f.name, value(f)])),
      };
  }
  return body;
}

// matches reports whether an error of a field of the API belongs to a field of the form. An error of a
// setting with parts belongs to the first of them.
export function matches(f: Field, error: string): boolean {
  if (error === f.path || error.startsWith(`${f.path}.`) || error.startsWith(`${f.path}[`)) return true;
  return error === f.setting.name && f.name === f.setting.parts?.[0]?.name;
}

// maskSecrets returns a body as it may be shown: a value that was typed for a header or a key is not in it.
export function maskSecrets(body: Record<string, unknown>): Record<string, unknown> {
  const mask = (v: unknown): unknown => {
    if (typeof v === 'object' && v !== null) return Object.fromEntries(Object.entries(v).map(([name, one]) => [name, mask(one)]));
    return typeof v === 'string' && v !== '***' ? '…' : v;
  };
  const secret = settings.filter((s) => s.secret && s.name in body);
  return { ...body, ...Object.fromEntries(secret.map((s) => [s.name, mask(body[s.name])])) };
}

// flagsOf returns the flags of "keygate gateways update" for the fields that were touched.
export function flagsOf(changes: Partial<Values>, values: Values): string[] {
  const cors = Object.keys(changes).some((path) => path.startsWith('cors.'));
  return fields.flatMap((f) => {
    const v = values[f.path] ?? '';
    // The flags of CORS go together.
    const shown = f.path in changes || (f.setting.kind === 'cors' && cors && v !== '');
    if (!shown) return [];
    if (f.kind === 'bool') return [`--${f.flag}=${v}`];
    if (v.trim() === '') return [`--${f.flag} ''`];
    if (f.kind === 'headers') return [`--${f.flag}s-file FILE`];
    if (isLong(f.kind)) return [`--${f.flag} FILE`];
    return f.kind === 'list' ? list(v).map((i) => `--${f.flag} ${quote(i)}`) : [`--${f.flag} ${quote(v)}`];
  });
}
