import type { Schemas } from '../api/client';
import { quote } from './shell';

export type HeaderRules = Schemas['HeaderRules'];

// headersText returns headers, one “Name: value” in a line.
export const headersText = (headers: Record<string, string>): string =>
  Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}`)
    .join('\n');

// headersOf returns the headers of such lines.
export function headersOf(lines: string): Record<string, string> {
  const pairs = lines
    .split('\n')
    .filter((l) => l.trim() !== '')
    .map((l): [string, string] => {
      const i = l.indexOf(':');
      return i < 0 ? [l.trim(), ''] : [l.slice(0, i).trim(), l.slice(i + 1).trim()];
    });
  return Object.fromEntries(pairs);
}

// pairFlags returns a flag for each header of such lines.
export const pairFlags = (flag: string, lines: string): string[] =>
  Object.entries(headersOf(lines)).map(([name, value]) => `--${flag} ${quote(`${name}=${value}`)}`);

// Rules are the rules of a route for the headers of its requests or responses, as the values of a form.
export interface Rules {
  set: string;
  remove: string;
}

export const rulesOf = (r: HeaderRules | null): Rules => ({ set: headersText(r?.set ?? {}), remove: (r?.remove ?? []).join(', ') });

const names = (text: string) =>
  text
    .split(',')
    .map((t) => t.trim())
    .filter(Boolean);

// ruleBody returns what PATCH takes for rules: null for none.
export function ruleBody({ set, remove }: Rules): { set?: Record<string, string>; remove?: string[] } | null {
  const headers = headersOf(set);
  const some = { ...(Object.keys(headers).length > 0 && { set: headers }), ...(names(remove).length > 0 && { remove: names(remove) }) };
  return Object.keys(some).length === 0 ? null : some;
}

// ruleFlags returns the flags of the command line that do the same.
export function ruleFlags(flag: string, r: Rules): string[] {
  const flags = [...pairFlags(flag, r.set), ...names(r.remove).map((n) => `--remove-${flag} ${quote(n)}`)];
  return flags.length === 0 ? [`--${flag} ''`] : flags;
}

// ruleWords says in a sentence what rules do with some messages; "" for none.
export function ruleWords(of: string, r: HeaderRules | null): string {
  const set = Object.keys(r?.set ?? {});
  const parts = [
    set.length > 0 && `${set.join(', ')} ${set.length > 1 ? 'are' : 'is'} set on ${of}`,
    r !== null && r.remove.length > 0 && `${r.remove.join(', ')} ${r.remove.length > 1 ? 'are' : 'is'} removed from ${of}`,
  ].filter(Boolean);
  return parts.length === 0 ? '' : `${parts.join('; ')}.`;
}
