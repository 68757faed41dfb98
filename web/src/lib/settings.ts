import { type Group, groups, type Kind, type Part, type Setting, upstreamGroups } from '../api/settings.gen';
import { headersOf, headersText, pairFlags } from './headers';
import { quote } from './shell';
import { flagsOf as splitFlags, type SplitEntry, splitOf, textOf as splitText } from './split';

// A Field of a form is a setting, or a part of one, or the switch that turns a setting off.
export interface Field extends Part {
  path: string; // as an error of the API names it: the name of the setting, and of the part after a dot
  setting: Setting;
}

function fieldsOf(setting: Setting): Field[] {
  const whole = { ...setting, path: setting.name, setting };
  const parts = setting.parts?.map((p) => ({ ...p, path: `${setting.name}.${p.name}`, setting })) ?? [];
  if (isSwitch(whole)) return [whole, ...parts];
  return setting.parts ? parts : [whole];
}

// isSwitch reports whether a field is not the value of a setting, but turns it on ("true") and off ("false").
export const isSwitch = (f: Field): boolean => f.kind === 'ejection' || f.kind === 'maintenance';

// The values of a form, as text, by path; "" means that a setting is not set.
export type Values = Record<string, string>;

// isLong reports whether values of a kind have several lines.
export const isLong = (kind: Kind): boolean =>
  kind === 'headers' || kind === 'pairs' || kind === 'certificate' || kind === 'key' || kind === 'split';

function textOf(f: Field, value: unknown): string {
  if (isSwitch(f)) return String(f.kind === 'maintenance' ? value !== null && value !== undefined : value !== false);
  if (value === null || value === undefined) return (f.kind === 'text' && f.choices?.[0]) || '';
  if (f.kind === 'list') return (value as string[]).join(', ');
  if (f.kind === 'split') return splitText(value as SplitEntry[]);
  if (isService(f) && value === '') return wholeServer;
  return f.kind === 'headers' || f.kind === 'pairs' ? headersText(value as Record<string, string>) : String(value);
}

// isService reports whether a field names the gRPC service of checks, of which wholeServer stands for the server as a whole.
const isService = (f: Field): boolean => f.path === 'health.grpc';
const wholeServer = '""';

// valueIn returns the value of a field in that of its setting. What is turned off has its defaults there, with which it
// is turned on.
function valueIn(f: Field, whole: unknown): unknown {
  if (f.path === f.setting.name) return whole;
  return whole ? (whole as Record<string, unknown>)[f.name] : f.default;
}

// exact reads an integer of any size.
const exact = (digits: string) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));
export const list = (text: string) =>
  text
    .split(',')
    .map((t) => t.trim())
    .filter(Boolean);

// valueOf returns what the API takes for a text that is not empty. A number that is none is sent as it is, so
// that the server names it.
function valueOf(kind: Kind, text: string): unknown {
  const trimmed = text.trim();
  if (kind === 'bool') return text === 'true';
  if (kind === 'count') return /^\d+$/.test(trimmed) ? exact(trimmed) : text;
  if (kind === 'list') return list(text);
  if (kind === 'split') return splitOf(text);
  return kind === 'headers' || kind === 'pairs' ? headersOf(text) : trimmed;
}

// checkKind returns the part of health that says how targets are checked, if one is given.
const checkKind = (parts: Field[], text: (f: Field) => string): Field | undefined =>
  parts.find((f) => (f.name === 'path' || f.name === 'grpc' ? text(f).trim() !== '' : f.name === 'tcp' && text(f) === 'true'));

// healthOf returns what PATCH takes for checks: nothing for no kind of them. Headers that were not touched stay, and only a request
// has a status.
function healthOf(parts: Field[], changes: Partial<Values>, text: (f: Field) => string): unknown {
  if (!checkKind(parts, text)) return null;
  const hasPath = parts.some((f) => f.name === 'path' && text(f).trim() !== '');
  const sent = parts.filter((f) => {
    if (f.kind === 'headers') return f.path in changes;
    return text(f).trim() !== '' && (f.name !== 'statuses' || hasPath);
  });
  const value = (f: Field) => (isService(f) && text(f).trim() === wholeServer ? '' : valueOf(f.kind, text(f)));
  return Object.fromEntries(sent.map((f) => [f.name, value(f)]));
}

// healthFlag is the value of --health: "path=/healthz,statuses=200-299+304"; "" for no checks.
function healthFlag(own: Field[], values: Values): string {
  const text = (f: Field) => (values[f.path] ?? '').trim();
  if (!checkKind(own, text)) return '';
  const hasPath = own.some((f) => f.name === 'path' && text(f) !== '');
  return own
    .filter((f) => f.kind !== 'headers' && text(f) !== '' && text(f) !== 'false' && (f.name !== 'statuses' || hasPath))
    .map((f) => {
      if (f.kind === 'bool') return f.name;
      if (isService(f) && text(f) === wholeServer) return f.name;
      return `${f.name}=${f.name === 'statuses' ? list(text(f)).join('+') : text(f)}`;
    })
    .join(',');
}

// A setting that has a flag has it for all of its parts, apart from those that have their own.
const hasOneFlag = (s: Setting) => s.parts !== undefined && s.flag !== '';

// wholeOf returns what PATCH takes for a setting with parts, of which at least one was touched.
function wholeOf(setting: Setting, own: Field[], changes: Partial<Values>, text: (f: Field) => string): unknown {
  const parts = own.filter((f) => !isSwitch(f));
  const [first] = parts as [Field];
  const empty = (f: Field) => text(f).trim() === '';
  if (setting.kind === 'health') return healthOf(parts, changes, text);
  if (own.some((f) => isSwitch(f) && text(f) === 'false')) return setting.kind === 'maintenance' ? null : false;
  // Emptying the origins ends CORS. Other parts without an origin are sent, so that the server names it.
  if (setting.kind === 'cors' && first.path in changes && empty(first)) return null;
  // A list of choices is never absent: that would be its default.
  const sent = parts.filter((f) => !empty(f) || f.choices);
  if (sent.length === 0) return setting.kind === 'maintenance' ? {} : null;
  return { ...(setting.kind === 'cors' && { origins: [] }), ...Object.fromEntries(sent.map((f) => [f.name, valueOf(f.kind, text(f))])) };
}

// wholeFlag is the value of the flag of a setting with parts: "false", or "failures=5,on=connect+reset".
function wholeFlag(own: Field[], values: Values): string {
  const text = (f: Field) => (values[f.path] ?? '').trim();
  if (own.some((f) => isSwitch(f) && text(f) === 'false')) return 'false';
  return own
    .filter((f) => !isSwitch(f) && text(f) !== '' && text(f) !== 'false')
    .map((f) => {
      const name = f.name.replaceAll('_', '-');
      return f.kind === 'bool' ? name : `${name}=${f.kind === 'list' ? list(text(f)).join('+') : text(f)}`;
    })
    .join(',');
}

// maintenanceFlags are the flags for the maintenance of a gateway: those of all of its parts, as it is replaced as a whole.
function maintenanceFlags(own: Field[], values: Values): string[] {
  const text = (f: Field) => (values[f.path] ?? '').trim();
  const on = own.some((f) => isSwitch(f) && text(f) === 'true');
  return own.flatMap((f) => {
    if (isSwitch(f)) return [`--${f.flag}=${on}`];
    if (!on || text(f) === '') return [];
    return f.kind === 'list' ? list(text(f)).map((i) => `--${f.flag} ${quote(i)}`) : [`--${f.flag} ${quote(text(f))}`];
  });
}

// settingsForm is the form of the settings in groups.
function settingsForm(of: Group[]) {
  const sections = of.map((g) => ({ ...g, fields: g.settings.flatMap(fieldsOf) }));
  const settings = of.flatMap((g) => g.settings);
  const fields = settings.flatMap(fieldsOf);
  return {
    sections,
    labels: Object.fromEntries(fields.map((f) => [f.path, f.label])) as Record<string, string>,

    // valuesOf returns the values of a record; those of one that is new, without a record.
    valuesOf: (record: object = {}): Values =>
      Object.fromEntries(fields.map((f) => [f.path, textOf(f, valueIn(f, (record as Record<string, unknown>)[f.setting.name]))])),

    // bodyOf returns what PATCH takes for the fields that were touched.
    bodyOf: (changes: Partial<Values>, values: Values): Record<string, unknown> => {
      const text = (f: Field) => changes[f.path] ?? values[f.path] ?? '';
      const body: Record<string, unknown> = {};
      for (const setting of settings) {
        const own = fieldsOf(setting);
        if (!own.some((f) => f.path in changes)) continue;
        const [first] = own as [Field];
        if (setting.parts) body[setting.name] = wholeOf(setting, own, changes, text);
        else body[setting.name] = text(first).trim() === '' && !setting.notNull ? null : valueOf(first.kind, text(first));
      }
      return body;
    },

    // maskSecrets returns a body as it may be shown: a value that was typed for a header or a key is not in it.
    maskSecrets: (body: Record<string, unknown>): Record<string, unknown> => {
      const mask = (v: unknown): unknown => {
        if (typeof v === 'object' && v !== null) return Object.fromEntries(Object.entries(v).map(([name, one]) => [name, mask(one)]));
        return typeof v === 'string' && v !== '***' ? '…' : v;
      };
      const secret = settings.filter((s) => s.secret && s.name in body);
      const shown = { ...body, ...Object.fromEntries(secret.map((s) => [s.name, mask(body[s.name])])) };
      const health = body.health as { headers?: unknown } | null | undefined;
      return health?.headers ? { ...shown, health: { ...health, headers: mask(health.headers) } } : shown;
    },

    // flagsOf returns the flags of the command line for the fields that were touched.
    flagsOf: (changes: Partial<Values>, values: Values): string[] =>
      settings.flatMap((setting) => {
        const own = fieldsOf(setting);
        const touched = own.some((f) => f.path in changes);
        if (hasOneFlag(setting) && !touched) return [];
        if (setting.kind === 'maintenance') return maintenanceFlags(own, values);
        const whole = setting.kind === 'health' ? healthFlag(own, values) : wholeFlag(own, values);
        const ofParts = hasOneFlag(setting) ? own.filter((f) => f.flag !== setting.flag && f.flag !== '') : own;
        const first = hasOneFlag(setting) ? [`--${setting.flag} ${quote(whole)}`] : [];
        if (setting.kind === 'health' && whole === '') return first;
        const others = ofParts.flatMap((f) => {
          const v = values[f.path] ?? '';
          // The flags of CORS go together, and so do those of rules for headers.
          const together = setting.kind === 'cors' || setting.kind === 'header_rules';
          const shown = f.path in changes || (together && touched && v !== '');
          if (!shown) return [];
          if (f.kind === 'bool') return [`--${f.flag}=${v}`];
          if (v.trim() === '') return [`--${f.flag} ''`];
          if (f.kind === 'split') return splitFlags(v);
          if (f.kind === 'pairs') return pairFlags(f.flag, v);
          if (f.kind === 'headers') return [`--${f.flag}s-file FILE`];
          if (isLong(f.kind)) return [`--${f.flag} FILE`];
          return f.kind === 'list' ? list(v).map((i) => `--${f.flag} ${quote(i)}`) : [`--${f.flag} ${quote(v)}`];
        });
        return [...first, ...others];
      }),
  };
}

export const gatewaySettings = settingsForm(groups);
export const upstreamSettings = settingsForm(upstreamGroups);

// matches reports whether an error of a field of the API belongs to a field of a form. An error of a setting with parts
// belongs to the first of them.
export function matches(f: Field, error: string): boolean {
  if (isSwitch(f)) return false; // its parts show it
  if (error === f.path || error.startsWith(`${f.path}.`) || error.startsWith(`${f.path}[`)) return true;
  return error === f.setting.name && f.name === f.setting.parts?.[0]?.name;
}
