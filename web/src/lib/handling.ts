import type { Schemas } from '../api/client';
import { headersOf, headersText } from './headers';
import { quote } from './shell';

type Route = Pick<Schemas['Route'], 'strip_prefix' | 'redirect' | 'respond'>;

export type Kind = 'forward' | 'redirect' | 'respond';

// A Handling is what a route does with its requests, as the values of a form.
export interface Handling extends Record<string, unknown> {
  kind: Kind;
  prefix: string;
  to: string;
  status: string;
  keepPath: boolean;
  keepQuery: boolean;
  contentType: string;
  body: string;
  headers: string;
}

export const handlingOf = ({ strip_prefix, redirect, respond }: Route): Handling => ({
  kind: redirect ? 'redirect' : respond ? 'respond' : 'forward',
  prefix: strip_prefix ?? '',
  to: redirect?.to ?? '',
  status: String(redirect?.status ?? respond?.status ?? 308),
  keepPath: redirect?.keep_path ?? false,
  keepQuery: redirect?.keep_query ?? false,
  contentType: respond?.content_type ?? '',
  body: respond?.body ?? '',
  headers: headersText(respond?.headers ?? {}),
});

// numberOf returns the number that a text is; the text if it is none, so that the server names it.
const numberOf = (text: string) => (/^\d+$/.test(text.trim()) ? Number(text) : text);

// bodyOf returns what PATCH takes.
export function bodyOf(v: Handling) {
  const headers = headersOf(v.headers);
  return {
    strip_prefix: v.kind === 'forward' && v.prefix.trim() !== '' ? v.prefix.trim() : null,
    redirect:
      v.kind === 'redirect' ? { to: v.to.trim(), status: numberOf(v.status), keep_path: v.keepPath, keep_query: v.keepQuery } : null,
    respond:
      v.kind === 'respond'
        ? {
            status: numberOf(v.status),
            ...(v.contentType.trim() !== '' && { content_type: v.contentType.trim() }),
            ...(v.body !== '' && { body: v.body }),
            ...(Object.keys(headers).length > 0 && { headers }),
          }
        : null,
  };
}

// flagsOf returns the flags of the command line that do the same.
export function flagsOf(v: Handling): string {
  const prefix = v.kind === 'forward' ? v.prefix.trim() : '';
  const redirect = v.kind === 'redirect' ? `${v.status} ${v.to.trim()}` : '';
  return [
    `--strip-prefix ${prefix === '' ? "''" : quote(prefix)}`,
    `--redirect ${redirect === '' ? "''" : quote(redirect)}`,
    ...(v.kind === 'redirect' && v.keepPath ? ['--redirect-keep-path'] : []),
    ...(v.kind === 'redirect' && v.keepQuery ? ['--redirect-keep-query'] : []),
    v.kind === 'respond' ? '--respond FILE' : "--respond ''",
  ].join(' ');
}

// wordsOf says in a sentence what a route does with its requests.
export function wordsOf({ strip_prefix, redirect, respond }: Route): string {
  if (redirect) {
    const kept = [redirect.keep_path && 'the path', redirect.keep_query && 'the query'].filter(Boolean).join(' and ');
    return `Requests are redirected to ${redirect.to}${kept && `, with ${kept} of the request`} (status ${redirect.status}).`;
  }
  if (respond) {
    const type = respond.content_type === null ? 'and no body' : `and a body of ${respond.content_type}`;
    return `The gateway responds to requests with status ${respond.status} ${type}.`;
  }
  return strip_prefix === null
    ? 'Requests are forwarded with their path as it came.'
    : `Requests are forwarded without ${strip_prefix} in front.`;
}
