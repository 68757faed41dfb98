import type { Schemas } from '../api/client';
import { quote } from './shell';

export type SplitEntry = Schemas['Split'];

// The body of an entry. What is not a percentage is sent as it is, so that the server names it.
interface EntryInput {
  upstream: string;
  weight?: number | string;
  sticky?: boolean;
  fallback?: boolean;
  when?: Record<string, unknown>;
}

const names = (list: string) =>
  list
    .split(',')
    .map((t) => t.trim())
    .filter(Boolean);

// lineOf returns an entry as a line, in the form that --split takes.
function lineOf({ upstream, weight, sticky, fallback, when }: SplitEntry): string {
  const [header] = Object.entries(when?.header ?? {});
  const condition = header
    ? `:header:${header[0]}=${header[1]}`
    : when?.key
      ? `:key:${when.key.join(',')}`
      : `:owner:${(when?.owner ?? []).join(',')}`;
  return `${upstream}${when ? condition : `=${weight}%`}${sticky ? '' : ',random'}${fallback ? ',fallback' : ''}`;
}

// textOf returns a split as lines.
export const textOf = (split: SplitEntry[]): string => split.map(lineOf).join('\n');

const linesOf = (text: string) =>
  text
    .split('\n')
    .map((l) => l.trim())
    .filter(Boolean);

function entryOf(line: string): EntryInput {
  const [, rest = '', options = ''] = /^(.*?)((?:,random|,fallback)*)$/.exec(line) ?? [];
  const at = rest.search(/[=:]/);
  const upstream = at < 0 ? rest : rest.slice(0, at);
  const entry: EntryInput = { upstream };
  if (options.includes(',random')) entry.sticky = false;
  if (options.includes(',fallback')) entry.fallback = true;
  if (at < 0) return entry;
  const value = rest.slice(at + 1);
  if (rest[at] === '=') {
    const percent = value.replace(/\s*%$/, '');
    return { ...entry, weight: /^\d+(\.\d+)?$/.test(percent) ? Number(percent) : value };
  }
  const colon = value.indexOf(':');
  const kind = value.slice(0, Math.max(colon, 0));
  const of = value.slice(colon + 1);
  if (kind !== 'header') return { ...entry, when: { [kind || 'owner']: names(of) } };
  const is = of.indexOf('=');
  return { ...entry, when: { header: is < 0 ? { [of]: '' } : { [of.slice(0, is)]: of.slice(is + 1) } } };
}

// splitOf returns what the API takes for lines.
export const splitOf = (text: string): EntryInput[] => linesOf(text).map(entryOf);

// flagsOf returns the flags of the command line for lines.
export const flagsOf = (text: string): string[] => {
  const lines = linesOf(text);
  return lines.length === 0 ? ["--split ''"] : lines.map((l) => `--split ${quote(l)}`);
};

// wordsOf says who gets which side, in the order in which it is decided. upstream is that of all other requests.
export function wordsOf(split: EntryInput[], upstream: string): string[] {
  const conditions = split.filter((e) => e.when);
  const weighted = split.find((e) => e.weight !== undefined);
  const other = (e: EntryInput) => (e.fallback ? ', or elsewhere while none of its targets takes part' : '');
  const said = conditions.map((e) => {
    const when = (e.when ?? {}) as { header?: Record<string, string>; key?: string[]; owner?: string[] };
    const [header] = Object.entries(when.header ?? {});
    const who = header
      ? `Requests with the header ${header[0]}: ${header[1]}`
      : when.key
        ? `Requests with ${when.key.length === 1 ? 'the key' : 'one of the keys'} ${when.key.join(', ')}, or others of their rotations`
        : `Requests with a key of ${(when.owner ?? []).join(', ')}`;
    return `${who} go to ${e.upstream}${other(e)}.`;
  });
  const rest = conditions.length > 0 ? 'all other ' : '';
  if (weighted) {
    const who = weighted.sticky === false ? `${rest}requests, whoever makes them,` : `${rest}callers, who stay there,`;
    said.push(`${weighted.weight} % of ${who} go to ${weighted.upstream}${other(weighted)}.`);
  }
  return [...said, `Everything else goes to ${upstream}.`];
}
