import { parse, stringify } from './json';
import type { components, paths } from './schema.gen';

export type Schemas = components['schemas'];

// Base is the path of the dashboard: "/" or --admin-base-path with a slash at both ends.
export const base = document.querySelector<HTMLMetaElement>('meta[name="keygate-base"]')?.content || '/';

// An ApiError is a response other than 2xx, or no response at all (status 0).
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string, // "error" of the body
    message: string,
    readonly code?: string,
    readonly fields: { field: string; message: string }[] = [],
    readonly requestId?: string,
    readonly retryAfter?: number, // seconds
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

export interface Answer<T> {
  data: T;
  etag: string | null;
}

type Query = Record<string, string | number | boolean | undefined | null>;

export interface CallOptions {
  path?: Record<string, string | number>;
  query?: Query;
  body?: unknown; // sent as JSON
  text?: { content: string; type: string }; // sent as it is
  ifMatch?: string | null;
  idempotencyKey?: string;
  signal?: AbortSignal;
}

// Called with every outcome of a call, so that the shell can say that the server is away or that the
// session has ended.
export type Listener = (outcome: 'answered' | 'unreachable' | 'unauthorized') => void;
let listener: Listener = () => {};
export function listen(l: Listener) {
  listener = l;
}

// While there is no session, only calls of the session are sent: the others would be refused, and each would
// be a record of the audit log.
let signedOut = false;
export function setSignedOut(to: boolean) {
  signedOut = to;
}

// The difference between the server's clock and this one, in milliseconds, from the last response.
let skew = 0;
export function serverNow(): number {
  return Date.now() + skew;
}

// url returns the address of a call of the API document.
export function url(template: string, path: Record<string, string | number> = {}, query: Query = {}): string {
  const filled = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(path[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return base + filled.slice(1) + (text ? `?${text}` : '');
}

// throughProvider is the address of a sign-in through the identity provider that comes back to this page.
export function throughProvider(again: boolean): string {
  const page = location.pathname.startsWith(base) ? `/${location.pathname.slice(base.length)}` : '/';
  return url('/v1/session/sso', {}, { return_to: page + location.search, reauthenticate: again || undefined });
}

async function call<T>(method: string, template: string, o: CallOptions = {}): Promise<Answer<T>> {
  const isSignIn = template === '/v1/session' || template === '/v1/session/sso/provider';
  if (signedOut && !isSignIn) throw new ApiError(401, 'unauthorized', 'Your session has ended. Sign in to go on.');
  const headers: Record<string, string> = { Accept: 'application/json', 'X-Keygate-Source': 'dashboard' };
  let body: string | undefined;
  if (o.text) {
    headers['Content-Type'] = o.text.type;
    body = o.text.content;
  } else if (o.body !== undefined) {
    headers['Content-Type'] = 'application/json';
    body = stringify(o.body);
  }
  if (o.ifMatch) headers['If-Match'] = o.ifMatch;
  if (o.idempotencyKey) headers['Idempotency-Key'] = o.idempotencyKey;
  let response: Response;
  let text: string;
  try {
    response = await fetch(url(template, o.path, o.query), {
      method,
      headers,
      body,
      signal: o.signal ?? AbortSignal.timeout(60_000),
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
    });
    text = await response.text();
  } catch (error) {
    if (o.signal?.aborted) throw error;
    listener('unreachable');
    const change = method === 'GET' ? '' : ' Nothing was changed that it did not confirm.';
    throw new ApiError(0, 'unreachable', `Keygate does not respond.${change}`);
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  if (!Number.isNaN(date)) skew = Math.abs(date - Date.now()) > 5_000 ? date - Date.now() : 0;
  if (response.ok) {
    listener('answered');
    const json = response.headers.get('Content-Type')?.includes('json');
    return { data: (json ? parse(text) : text) as T, etag: response.headers.get('ETag') };
  }
  const failed = toError(response, text);
  if (failed.status === 401 && !isSignIn) listener('unauthorized');
  else listener(failed.kind === 'unreachable' ? 'unreachable' : 'answered');
  throw failed;
}

function toError(response: Response, text: string): ApiError {
  let body: Partial<Schemas['Error']> = {};
  try {
    body = parse(text) as Partial<Schemas['Error']>;
  } catch {
    // A response of something between the browser and Keygate.
  }
  if (!body.error) {
    const kind = response.status >= 502 && response.status <= 504 ? 'unreachable' : 'unexpected';
    return new ApiError(response.status, kind, `The server responded with ${response.status} without saying why.`);
  }
  const fields = body.errors ?? (body.field ? [{ field: body.field, message: body.message ?? '' }] : []);
  const retry = Number(response.headers.get('Retry-After'));
  return new ApiError(
    response.status,
    body.error,
    body.message ?? body.error,
    body.code ?? undefined,
    fields.map((f) => ({ field: f.field ?? '', message: f.message })),
    body.request_id,
    retry > 0 ? retry : undefined,
  );
}

// Types of the calls, from the API document.
type Ok<O> = O extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 201 ? (R[S] extends { content: { 'application/json': infer T } } ? T : string) : never }[keyof R]
  : never;
type With<M extends string> = { [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[keyof paths];
type Result<P extends keyof paths, M extends string> = paths[P] extends Record<M, infer O> ? Ok<O> : never;

export type GetPath = With<'get'>;
export type Got<P extends GetPath> = Result<P, 'get'>;

export const api = {
  get: <P extends GetPath>(path: P, o?: CallOptions) => call<Result<P, 'get'>>('GET', path, o),
  post: <P extends With<'post'>>(path: P, o?: CallOptions) => call<Result<P, 'post'>>('POST', path, o),
  put: <P extends With<'put'>>(path: P, o?: CallOptions) => call<Result<P, 'put'>>('PUT', path, o),
  patch: <P extends With<'patch'>>(path: P, o?: CallOptions) => call<Result<P, 'patch'>>('PATCH', path, o),
  delete: <P extends With<'delete'>>(path: P, o?: CallOptions) => call<Result<P, 'delete'>>('DELETE', path, o),
};
