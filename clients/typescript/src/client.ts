import { type ErrorBody, KeygateError, UnreachableError } from './errors.js';
import type { operations } from './schema.gen.js';

/** The name of a call in the API document. */
export type Operation = keyof operations;

type Part<T, Name extends string> = T extends { [K in Name]?: infer V } ? NonNullable<V> : never;
type Json<T> = T extends { content: { 'application/json': infer V } } ? V : never;

/** What the query of a call may have. */
export type Query<O extends Operation> = Part<operations[O]['parameters'], 'query'>;

/** The body of a call: an object, or the text of a document. */
export type Body<O extends Operation> =
  Part<operations[O], 'requestBody'> extends { content: infer C }
    ? 'application/yaml' extends keyof C
      ? string | Uint8Array
      : C extends { 'application/json': infer V }
        ? V
        : never
    : never;

type Responses<O extends Operation> = operations[O]['responses'];

/** What a successful call returns. */
export type Result<O extends Operation> = 201 extends keyof Responses<O>
  ? Json<Responses<O>[201]>
  : { [S in keyof Responses<O> & (200 | 202)]: Json<Responses<O>[S]> }[keyof Responses<O> & (200 | 202)];

/** What a dry run of a call returns, if that is not what the call itself does. */
export type DryRun<O extends Operation> = 200 extends keyof Responses<O> ? Json<Responses<O>[200]> : never;

export interface Config {
  /** The address of the management API, as in http://127.0.0.1:8081. It may have a path. */
  url: string;
  /** An account-level key. */
  key: string;
  /** How long an attempt of a call may take, in milliseconds: 60,000 unless it is given. Streams have no limit once they have begun. */
  timeout?: number;
  /** Sends requests instead of the global fetch. */
  fetch?: typeof fetch;
}

export interface Options {
  /** Ends the call, and the waiting between its attempts. */
  signal?: AbortSignal;
  /** Overrides that of the Config, in milliseconds. */
  timeout?: number;
}

/** Options of a call that changes something. */
export interface Update<O extends Operation = Operation> extends Options {
  /** With it, the server executes a POST once, whatever the number of attempts. One is made up unless it is given. */
  idempotencyKey?: string;
  /** The ETag that the record must still have, as etagOf returns it: else the error has the status 412. */
  ifMatch?: string;
  query?: Query<O>;
}

/** A call for Client.request, for what no method does. */
export interface Call extends Options {
  query?: object;
  /** An object is sent as JSON, and text or bytes as they are. */
  body?: unknown;
  idempotencyKey?: string;
  ifMatch?: string;
  headers?: Record<string, string>;
}

/** An event of a stream. */
export interface StreamEvent {
  event: string;
  data: any;
}

// How often a call is tried that can be repeated, and how long it waits at most for what the server asks for.
const tries = 4;
const longestWait = 30_000;

// The most bytes of a response that are read into memory, and characters of a line and of an event of a stream.
const mostBytes = 256 << 20;
const mostLine = 1 << 20;

const etags = new WeakMap<object, string>();

/** Returns the ETag of a record that a call returned, for ifMatch, or undefined if it has none. */
export function etagOf(record: object): string | undefined {
  return etags.get(record);
}

/** Returns a path whose values are each one segment. */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  let all = parts[0]!;
  values.forEach((value, i) => {
    const segment = encodeURIComponent(value);
    if (/^\.{0,2}$/.test(segment)) throw new TypeError(`${JSON.stringify(value)} is no identifier`);
    all += segment + parts[i + 1]!;
  });
  return all;
}

interface Page<T> {
  data: T[];
  next_cursor: string | null;
  incomplete_reason?: string;
}

/** The records of a list, page by page as they are read. A loop over it reads all of them. */
export class Pages<P extends { data: unknown[] }> implements AsyncIterable<P['data'][number]> {
  constructor(private readonly read: (cursor?: string) => Promise<P>) {}

  /** Reads one page: the first one, or that of the next_cursor of another one. */
  page(cursor?: string): Promise<P> {
    return this.read(cursor);
  }

  /** Reads all pages one after the other. */
  async *pages(): AsyncGenerator<P, void, undefined> {
    const seen = new Set<string>();
    for (let cursor: string | undefined; ;) {
      const page = await this.read(cursor);
      yield page;
      const next = (page as unknown as Page<unknown>).next_cursor;
      if (typeof next !== 'string') return;
      if (seen.has(next)) throw new Error('the list does not end: its server, or a proxy before it, has sent the same next_cursor twice');
      seen.add((cursor = next));
    }
  }

  /** Reads records until the loop ends, or there are no more. */
  async *[Symbol.asyncIterator](): AsyncGenerator<P['data'][number], void, undefined> {
    for await (const page of this.pages()) yield* page.data as any[];
  }

  /** Reads all records, or the first ones up to a number. */
  async all(most = Infinity): Promise<P['data'][number][]> {
    const records: P['data'][number][] = [];
    if (most < 1) return records;
    for await (const record of this) if (records.push(record) >= most) break;
    return records;
  }
}

/** Calls the management API. */
export class Client {
  private readonly base: string;
  // What is printed of a client in a log has no key.
  readonly #config: Config;

  /** Throws a TypeError if the address or the key cannot be one. */
  constructor(config: Config) {
    const url = URL.canParse(config.url) ? new URL(config.url) : undefined;
    if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
      throw new TypeError('url must be http:// or https:// with a host and no user, query or fragment, as in http://127.0.0.1:8081');
    }
    if (!/^[!-~]+$/.test(config.key)) throw new TypeError('key must be an account-level key, without spaces or line breaks');
    this.base = url.origin + url.pathname.replace(/\/+$/, '');
    this.#config = { ...config };
  }

  /** Makes a call and returns its response, whose body is not read yet. */
  async request(method: string, at: string, call: Call = {}): Promise<Response> {
    return this.attempts(method, at, call, method === 'POST', async (response) => response);
  }

  /** @internal */
  call<T>(method: string, at: string, call: Call = {}, repeatable = false): Promise<T> {
    return this.attempts(method, at, call, repeatable, async (response, signal) => {
      const value = JSON.parse(new TextDecoder().decode(await readAll(response, mostBytes, signal)));
      const etag = response.headers.get('ETag');
      if (etag && value instanceof Object) etags.set(value, etag);
      return value as T;
    });
  }

  /** @internal */
  text(at: string, call: Call = {}): Promise<string> {
    return this.attempts('GET', at, call, false, async (response, signal) =>
      new TextDecoder().decode(await readAll(response, mostBytes, signal)),
    );
  }

  /** @internal */
  list<P extends { data: unknown[] }>(at: string, query: object = {}, options: Options = {}): Pages<P> {
    return new Pages<P>((cursor) => this.call('GET', at, { ...options, query: cursor === undefined ? query : { ...query, cursor } }));
  }

  /** @internal */
  async bytes(at: string, query: object, options: Options = {}): Promise<NonNullable<Response['body']>> {
    return (await this.attempts('GET', at, { ...options, query }, false, async (response) => response)).body!;
  }

  /** @internal */
  async *stream(at: string, query: object = {}, options: Options = {}): AsyncGenerator<StreamEvent> {
    const headers = { Accept: 'text/event-stream' };
    const reader = (await this.attempts('GET', at, { ...options, query, headers }, false, async (response) => response)).body!.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    let event = { event: '', data: '' };
    try {
      for (;;) {
        const { done, value } = await reader.read().catch((cause: unknown) => {
          throw options.signal?.aborted ? cause : new UnreachableError(this.base, cause);
        });
        if (done) return;
        rest += decoder.decode(value, { stream: true });
        const lines = rest.split(/\r?\n/);
        rest = lines.pop()!;
        if (rest.length > mostLine) throw new UnreachableError(this.base, new Error('a line of the stream is too long'));
        for (const line of lines) {
          const [, field, text] = /^(event|data): ?(.*)$/.exec(line) ?? [];
          if (field === 'event') event.event = text!;
          if (field === 'data') event.data += (event.data && '\n') + text;
          if (event.data.length > mostLine) throw new UnreachableError(this.base, new Error('an event of the stream is too long'));
          if (line !== '') continue;
          if (event.event && event.data) yield { event: event.event, data: JSON.parse(event.data) };
          event = { event: '', data: '' };
        }
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  // attempts makes a call until it succeeds, or cannot be repeated: GET, and a POST with its Idempotency-Key, are tried again after a lost
  // connection, 429 and 5xx.
  private async attempts<T>(
    method: string,
    at: string,
    call: Call,
    repeatable: boolean,
    take: (response: Response, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#config.key}`, ...call.headers };
    let body = call.body;
    if (typeof body === 'string' || body instanceof Uint8Array) {
      headers['Content-Type'] ??= 'application/yaml';
    } else if (body !== undefined) {
      headers['Content-Type'] ??= 'application/json';
      body = JSON.stringify(body);
    }
    if (call.ifMatch) headers['If-Match'] = call.ifMatch;
    if (call.idempotencyKey ?? repeatable) headers['Idempotency-Key'] = call.idempotencyKey ?? randomKey();
    const again = method === 'GET' || (method === 'POST' && repeatable);
    const url = this.base + at + queryOf(call.query);
    for (let attempt = 1, lost = false; ; attempt++) {
      let failure: unknown;
      let wait = 100 * 2 ** (attempt - 1) * (1 + Math.random());
      try {
        return await this.attempt(url, { method, headers, body: body as BodyInit | undefined }, call, take);
      } catch (e) {
        call.signal?.throwIfAborted();
        failure = e;
        if (e instanceof KeygateError) {
          // After a lost connection, the first attempt may still be running.
          const running = lost && e.status === 409 && e.retryable;
          if (e.status !== 429 && e.status < 500 && !running) throw e;
          wait = Math.max(wait, e.retryAfter * 1000);
        } else if (e instanceof UnreachableError) {
          lost = true;
        } else {
          throw e;
        }
      }
      if (!again || attempt >= tries || wait > longestWait) throw failure;
      await pause(wait, call.signal);
    }
  }

  private async attempt<T>(
    url: string,
    init: RequestInit,
    call: Call,
    take: (response: Response, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const timeout = call.timeout ?? this.#config.timeout ?? 60_000;
    const ends = new AbortController();
    const stop = () => ends.abort(call.signal!.reason);
    call.signal?.throwIfAborted();
    call.signal?.addEventListener('abort', stop);
    const timer = setTimeout(() => ends.abort(new DOMException(`there was no response within ${timeout} ms`, 'TimeoutError')), timeout);
    try {
      const send = this.#config.fetch ?? fetch;
      // A redirect would send the key to another address.
      const response = await send(url, { ...init, redirect: 'manual', credentials: 'omit', cache: 'no-store', signal: ends.signal });
      if (response.status < 200 || response.status > 299) throw await errorOf(response, ends.signal);
      return await take(response, ends.signal);
    } catch (e) {
      if (e instanceof KeygateError || e instanceof SyntaxError) throw e;
      throw new UnreachableError(this.base, ends.signal.aborted ? ends.signal.reason : e);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The calls of a resource. */
export class Resource {
  /** @internal */
  declare protected readonly client: Client;

  constructor(client: Client) {
    Object.defineProperty(this, 'client', { value: client });
  }
}

function queryOf(query: object = {}): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value]) all.append(name, one instanceof Date ? one.toISOString() : String(one));
  }
  return all.size > 0 ? `?${all}` : '';
}

// randomKey returns 128 random bits. crypto.randomUUID is missing on pages that are loaded over plain HTTP.
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
}

async function errorOf(response: Response, signal: AbortSignal): Promise<KeygateError> {
  if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
    return new KeygateError(response, {
      message: `the server redirects, which is not followed: is this the address of a Keygate server? (status ${response.status || '3xx'})`,
    });
  }
  let body: ErrorBody = {};
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(await readAll(response, 1 << 20, signal)));
    if (value instanceof Object && typeof (value as ErrorBody).error === 'string') body = value;
  } catch {
    // whatever it is, it is not an error of Keygate
  }
  return new KeygateError(response, body);
}

async function readAll(response: Response, most: number, signal: AbortSignal): Promise<Uint8Array> {
  signal.throwIfAborted();
  const reader = response.body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let read = await reader?.read(); read && !read.done; read = await reader!.read()) {
    size += read.value.length;
    if (size > most) {
      await reader!.cancel();
      throw new Error(`the response has more than ${most} bytes: is this the address of a Keygate server?`);
    }
    chunks.push(read.value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, ms);
    function done() {
      signal?.removeEventListener('abort', stop);
      resolve();
    }
    function stop() {
      clearTimeout(timer);
      reject(signal!.reason);
    }
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
