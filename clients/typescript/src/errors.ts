/** The body of an error (contract, section 2). */
export interface ErrorBody {
  error?: string;
  message?: string;
  field?: string;
  code?: string;
  errors?: Problem[];
  request_id?: string;
}

/** Something that is wrong with a request. */
export interface Problem {
  field?: string;
  message: string;
}

/** The server refused a call, or could not execute it. */
export class KeygateError extends Error {
  override readonly name = 'KeygateError';
  /** The HTTP status. 0 is that of a redirect in a browser. */
  readonly status: number;
  /** The most precise name of the error, as in key_invalid, else validation_failed. '' if the response is not Keygate's. */
  readonly code: string;
  /** The path of the invalid field, or the name of the parameter or header. */
  readonly field: string | undefined;
  /** Everything that is wrong with the request. */
  readonly problems: Problem[];
  /** Identifies the request in the server's log. */
  readonly requestId: string | undefined;
  /** How long to wait before the next try, in seconds. 0 if the response does not say. */
  readonly retryAfter: number;
  /** @internal Set if another request with the same Idempotency-Key is still running. */
  readonly retryable: boolean;

  /** @internal */
  constructor(response: Response, body: ErrorBody) {
    super(body.message ?? `the server responded with status ${response.status}, and not with an error of Keygate`);
    this.status = response.status;
    this.code = body.code ?? body.error ?? '';
    this.field = body.field;
    this.problems = body.errors ?? [];
    this.requestId = body.request_id ?? response.headers.get('X-Request-Id') ?? undefined;
    this.retryAfter = Number(/^\d{1,9}$/.exec(response.headers.get('Retry-After') ?? '')?.[0] ?? 0);
    this.retryable = body.field === 'Idempotency-Key';
  }
}

/** A call got no complete response: the server may have executed it. */
export class UnreachableError extends Error {
  override readonly name = 'UnreachableError';

  constructor(url: string, cause: unknown) {
    super(`cannot reach the server at ${url}: ${cause instanceof Error ? messageOf(cause) : String(cause)}`, { cause });
  }
}

// messageOf returns the message of the cause that says most: that of fetch is "fetch failed".
function messageOf(e: Error): string {
  return e.cause instanceof Error && e.cause.message ? e.cause.message : e.message;
}

/** A delivery is not authentic, or too old. */
export class SignatureError extends Error {
  override readonly name = 'SignatureError';
}
