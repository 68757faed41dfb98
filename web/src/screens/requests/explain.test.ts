import { describe, expect, test } from 'vitest';
import { explain, hasPassed, leftThen, limitName, type LoggedRequest, short } from './explain';

const none = {
  limit_scope: null,
  limit_name: null,
  limit: null,
  remaining: null,
  passes_at: null,
  reason: null,
  detail: null,
  upstream_status: null,
  by_default: null,
  nearest_routes: [],
};

function request(status: number, decision: Partial<LoggedRequest['decision']>, rest: Partial<LoggedRequest> = {}): LoggedRequest {
  return {
    request_id: 'req_1',
    time: '2026-03-01T12:00:00.5Z',
    status,
    method: 'GET',
    path: '/orders/17',
    client_ip: '203.0.113.7',
    host: null,
    duration_ms: 1,
    gateway_id: 'gw_1',
    route_id: 'rt_1',
    key_id: null,
    key_prefix: null,
    credential: null,
    issuer_id: null,
    subject: null,
    left_out: 0,
    cost: null,
    side: null,
    side_reason: null,
    attempts: null,
    not_tried: null,
    not_tried_count: 0,
    all_unhealthy: false,
    decision: { check: '', code: '', message: 'said by the server', ...none, ...decision },
    ...rest,
  };
}

const known = { key_id: 'key_1', key_prefix: 'kg_4tQx9Z' };
const limited = { check: 'limit', code: 'rate_limit_exceeded', limit: 50, remaining: 0, passes_at: '2026-03-01T12:00:03Z' };

// Guarantee: a request that is in the log for its cost alone is said to have been charged, and not to be refused or failed;
// one that was refused or failed is explained by that.
test('explain says what a request was charged', () => {
  const tokens = { units: 1204, reserved: 2000, unknown: null, explanation: '' };
  const cost = { requests: { ...tokens, units: 1 }, tokens };
  const answered = request(200, { check: 'upstream', code: 'upstream_status', upstream_status: 200 }, { cost });
  expect(explain(answered)).toBe(
    'The request GET /orders/17 at 2026-03-01 12:00:00 UTC had the status 200, and was charged 1 request, 1,204 tokens (request req_1).',
  );
  expect(short(answered)).toBe('Charged 1 request, 1,204 tokens');
  const gone = request(499, { check: 'client', code: 'abandoned' }, { cost });
  expect(explain(gone)).toContain('ended without a response, because the client closed its connection, and was charged 1 request');
  const failed = request(502, { check: 'upstream', code: 'upstream_unreachable', reason: 'closed_early' }, { cost });
  expect(explain(failed)).toContain('failed with status 502 because');
  expect(hasPassed(request(429, { ...limited, limit_scope: 'route' }))).toBe(false);
});

// Guarantee: a request that is in the log for its attempts alone is said to have passed after so many; the sentence has no
// addresses of targets.
test('explain says how many attempts a request had', () => {
  const attempt = {
    target: '10.0.0.1:8443',
    result: 'connect',
    reason: null,
    status: null,
    duration_ms: 1,
    ejected: null,
    explanation: '',
  };
  const passed = request(200, { check: 'upstream', code: 'upstream_status', upstream_status: 200 }, { attempts: [attempt, attempt] });
  expect(explain(passed)).toBe(
    'The request GET /orders/17 at 2026-03-01 12:00:00 UTC had the status 200, after 2 attempts (request req_1).',
  );
  expect(short(passed)).toBe('Passed after 2 attempts');
  const failed = request(
    502,
    { check: 'upstream', code: 'upstream_unreachable', reason: 'closed_early' },
    { attempts: [attempt, attempt] },
  );
  expect(explain(failed)).toContain('before it responded, after 2 attempts (request');
});

// Guarantee: one sentence says which check or limit decided a request, its level, and when the request
// would have passed, with all that support needs to find it again.
describe('explain', () => {
  const cases: [string, LoggedRequest, string][] = [
    [
      'limit of the server',
      request(429, {
        ...limited,
        limit_scope: 'global',
        limit: 1_000_000,
        message: "the gateway sets no limit, and the server's limit for such gateways (--default-global-limit) of 1000000 was used up",
      }),
      'the server’s limit of 1,000,000 requests for a gateway that sets none was used up, with 0 left; the request would have passed',
    ],
    [
      'missing key',
      request(401, { check: 'key', code: 'key_invalid' }),
      'no key was sent, or what was sent does not have the form of a key',
    ],
    ['no key', request(401, { check: 'key', code: 'key_invalid', reason: 'no_key' }), 'no key was sent (request'],
    [
      'key without its scheme',
      request(401, { check: 'key', code: 'key_invalid', reason: 'key_without_scheme' }),
      'the key was sent in the header Authorization without “Bearer” before it',
    ],
    [
      'key in another header',
      request(401, { check: 'key', code: 'key_invalid', reason: 'key_in_other_header' }),
      'the key was sent in a header that the gateway does not read',
    ],
    [
      'typo',
      request(401, { check: 'key', code: 'key_invalid', reason: 'mistyped_key' }),
      'what was sent begins like a key, but was mistyped or cut off',
    ],
    [
      'something else',
      request(401, { check: 'key', code: 'key_invalid', reason: 'not_a_key' }),
      'what was sent does not have the form of a key, which begins with “kg_”',
    ],
    [
      'address that failed',
      request(401, { check: 'key', code: 'key_invalid', reason: 'address_failed' }),
      'too many requests of the same address had failed to authenticate within a minute',
    ],
    [
      'unknown key',
      request(401, { check: 'key', code: 'key_invalid' }, { key_prefix: 'kg_4tQx9Z' }),
      'the key kg_4tQx9Z… is not valid here',
    ],
    ['revoked key', request(401, { check: 'key', code: 'key_invalid' }, known), 'the key kg_4tQx9Z… had been revoked'],
    ['expired key', request(401, { check: 'key', code: 'key_expired' }, known), 'the key kg_4tQx9Z… had expired'],
    [
      'another gateway',
      request(403, { check: 'gateway', code: 'scope_insufficient' }, known),
      'the key kg_4tQx9Z… is restricted to another gateway',
    ],
    [
      'scope',
      request(403, { check: 'scope', code: 'scope_insufficient' }, { ...known, method: 'DELETE' }),
      'the scope of the key kg_4tQx9Z… does not allow DELETE on this path',
    ],
    [
      'route limit',
      request(429, { ...limited, limit_scope: 'route' }),
      'the limit of 50 requests for the route /orders/{id} was used up, with 0 left; the request would have passed at 2026-03-01 12:00:03 UTC, 3 s later',
    ],
    ['key limit', request(429, { ...limited, limit_scope: 'key', limit: 1 }), 'the limit of 1 request for the key was used up'],
    [
      'daily limit',
      request(429, { ...limited, limit_scope: 'daily', limit: 10_000, passes_at: '2026-03-02T00:00:00Z' }),
      'the daily limit of 10,000 requests for the route /orders/{id} was used up, with 0 left; the request would have passed at 2026-03-02 00:00:00 UTC, 12 h later',
    ],
    [
      "a key's daily limit",
      request(429, { ...limited, limit_scope: 'key', message: "the key's own daily limit of 50 was used up" }),
      'the daily limit of 50 requests for the key was used up',
    ],
    [
      'limit of a plan',
      request(429, { ...limited, limit_scope: 'plan', limit_name: 'pro.per-minute' }),
      'the limit “per-minute” (50) of the plan “pro” was used up, with 0 left',
    ],
    ['suspended owner', request(403, { check: 'owner', code: 'owner_suspended' }, known), 'the owner of the key kg_4tQx9Z… was suspended'],
    ['global limit', request(429, { ...limited, limit_scope: 'global' }), 'the limit of 50 requests for the whole gateway was used up'],
    [
      'connection refused',
      request(502, { check: 'upstream', code: 'upstream_unreachable', reason: 'connection_refused' }),
      'the service behind the gateway refused the connection',
    ],
    [
      'certificate',
      request(502, { check: 'upstream', code: 'upstream_unreachable', reason: 'certificate_rejected' }),
      'the TLS certificate of the service behind the gateway was not accepted',
    ],
    [
      'unreachable',
      request(502, { check: 'upstream', code: 'upstream_unreachable' }),
      'the service behind the gateway could not be reached',
    ],
    [
      'a reason added later',
      request(502, { check: 'upstream', code: 'upstream_unreachable', reason: 'new' }),
      'the service behind the gateway could not be reached, or did not respond',
    ],
    [
      'timeout',
      request(504, { check: 'timeout', code: 'upstream_timeout', reason: 'timeout' }),
      'the service behind the gateway did not respond in time',
    ],
    [
      'no connection',
      request(504, { check: 'timeout', code: 'upstream_timeout', reason: 'no_free_connection' }),
      'all connections to the service behind the gateway were in use',
    ],
    [
      'upstream status',
      request(503, { check: 'upstream', code: 'upstream_status', upstream_status: 503 }),
      'the service behind the gateway responded with status 503',
    ],
    ['Keygate failed', request(500, { check: 'internal', code: 'internal' }), 'the gateway itself failed'],
    ['unavailable', request(503, { check: 'internal', code: 'unavailable' }), 'the gateway could not handle requests at that time'],
    ['not found', request(404, { check: 'route', code: 'route_not_found' }), 'said by the server'],
    ['method', request(405, { check: 'route', code: 'method_not_allowed' }), 'said by the server'],
  ];
  test.each(cases)('%s', (_name, r, cause) => {
    const text = explain(r, { gateway: 'Orders', route: '/orders/{id}' });
    expect(text).toContain(`because ${cause}`);
    expect(text).toContain(`${r.method} /orders/17 on the gateway “Orders” at 2026-03-01 12:00:00 UTC`);
    expect(text).toContain(`with status ${r.status}`);
    expect(text).toMatch(r.status >= 500 ? / failed with / : / was refused with /);
    expect(text).toMatch(/\(request req_1\)\.$/);
    expect(text).not.toContain('\n');
  });

  test('addresses of upstreams are not in it', () => {
    const r = request(502, {
      check: 'upstream',
      code: 'upstream_unreachable',
      reason: 'connection_refused',
      detail: 'dial tcp 10.0.0.7:8080: refused',
    });
    expect(explain(r)).not.toContain('10.0.0.7');
  });

  // Guarantee: the sentence never has a key, a signing secret or a token, wherever a client put it.
  test('secrets are not in it', () => {
    const secret = 'AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCd';
    for (const put of [
      `kg_${secret}`,
      `kga_${secret}`,
      `kg%5F${secret}`,
      `whsec_${secret}`,
      `eyJhbGciOi.${secret}.${secret}`,
      `x=kg_${secret}&y`,
    ]) {
      const decision = { ...limited, limit_scope: 'route' as const };
      const text = explain(request(429, decision, { path: `/orders/${put}/x`, ...known }), { gateway: put, route: `/${put}` });
      expect(text).not.toContain(secret.slice(6));
      expect(text).toContain('/x on the gateway');
      expect(text).toContain('(request req_1).');
      expect(explain(request(400, { check: 'other', code: 'new', message: `bad ${put}` }))).not.toContain(secret.slice(6));
    }
    expect(explain(request(401, { check: 'key', code: 'key_invalid' }, { ...known, path: '/kg_orders/whsec/eyJ' }))).toContain(
      ' /kg_orders/whsec/eyJ at ',
    );
  });

  test('the limit of a key names the key', () => {
    expect(explain(request(429, { ...limited, limit_scope: 'key' }, known))).toContain(
      'the limit of 50 requests for the key kg_4tQx9Z… was used up',
    );
  });

  test('names and paths can neither break nor reorder it', () => {
    const r = request(503, { check: 'internal', code: 'unavailable' }, { path: '/a\u202Eb\nc' });
    expect(explain(r, { gateway: 'x\u2067y\u2028z' })).toContain('GET /abc on the gateway “xyz” at');
  });

  test('exact integers beyond 2^53', () => {
    expect(explain(request(429, { ...limited, limit_scope: 'key', limit: 9_007_199_254_740_993n as unknown as number }))).toContain(
      '9,007,199,254,740,993 requests',
    );
  });
});

// Guarantee: a refusal by a quota says its window, how long it lasts in days, and of one that never resets no time.
test('a quota', () => {
  const decision = { ...limited, limit_scope: 'plan' as const, limit_name: 'pro.monthly', passes_at: '2026-04-01T00:00:00Z' };
  expect(explain(request(429, decision), { meter: 'requests', quota: '40/month' })).toContain(
    'the limit “monthly” of 50 requests a month of the plan “pro” was used up, with 0 left; the request would have passed at 2026-04-01 00:00:00 UTC, 31 days later (',
  );
  const total = request(429, { ...decision, passes_at: '2038-01-19T03:14:07Z' });
  expect(explain(total, { meter: 'requests', quota: '40/total' })).toContain(
    'of 50 requests in total of the plan “pro” was used up, with 0 left; it never resets (',
  );
  expect(short(total)).toBe('The limit “monthly” (50) of the plan “pro” was used up, with 0 left');
});

// Guarantee: a refusal by a limit of requests in flight says whose limit it is and how many it allows, and no time: it is not
// known when the others would have ended.
describe('requests in flight', () => {
  const refused = (limit_name: string | null, rest: Partial<LoggedRequest> = {}) =>
    request(429, { ...limited, limit_scope: 'concurrency', limit_name, limit: 5 }, rest);
  const cases: [string, LoggedRequest, { sentence: string; short: string; name: string }][] = [
    [
      'of a key',
      refused('key', known),
      {
        sentence: 'as many requests of the key kg_4tQx9Z… were in flight as its limit of 5 allows',
        short: 'As many requests of the key were in flight as its limit of 5 allows',
        name: 'the limit of 5 requests in flight for the key kg_4tQx9Z…',
      },
    ],
    [
      'of a route',
      refused('route', known),
      {
        sentence: 'as many requests were in flight as the limit of 5 of the route /orders/{id} allows',
        short: 'As many requests were in flight as the limit of 5 of the route allows',
        name: 'the limit of 5 requests in flight for the route /orders/{id}',
      },
    ],
    [
      'of a plan',
      refused('pro.parallel', known),
      {
        sentence: 'as many requests were in flight as the limit “parallel” (5) of the plan “pro” allows',
        short: 'As many requests were in flight as the limit “parallel” (5) of the plan “pro” allows',
        name: 'the limit “parallel” of 5 requests in flight of the plan “pro”',
      },
    ],
    [
      'without a name',
      refused(null),
      {
        sentence: 'as many requests were in flight as a limit of 5 allows',
        short: 'As many requests were in flight as a limit of 5 allows',
        name: 'a limit of 5 requests in flight',
      },
    ],
  ];
  test.each(cases)('%s', (_name, r, expected) => {
    const names = { gateway: 'Orders', route: '/orders/{id}' };
    expect(explain(r, names)).toContain(`was refused with status 429 because ${expected.sentence} (request req_1).`);
    expect(short(r)).toBe(expected.short);
    expect(limitName(r, names)).toBe(expected.name);
    expect(leftThen(r, names)).toBe('0 of 5 requests in flight');
  });
});

// Guarantee: a limit of a plan that counts bytes is not said to count requests, and none is called used up that had something
// left, but less than the request needed; what is counted is not guessed if the plan is not known.
test('what a limit of a plan counts', () => {
  const of = (limit: number, remaining = 0) =>
    request(429, { ...limited, limit_scope: 'plan', limit_name: 'pro.traffic', limit, remaining });
  const [mib, gb, tokens] = [of(5 * 1024 ** 2, 1536 * 1024), of(10_000_000_000), of(5000, 1220)];
  expect(explain(mib, { meter: 'bytes_in' })).toContain(
    'because the limit “traffic” of 5 MiB of requests of the plan “pro” had 1,536 KiB left, less than the request needed; the request would have passed',
  );
  expect(explain(gb, { meter: 'bytes_out', quota: '10000000000/month' })).toContain(
    'because the limit “traffic” of 10 GB of responses a month of the plan “pro” was used up, with 0 left; the request would have passed',
  );
  expect(explain(tokens, { meter: 'tokens', quota: '5000/month' })).toContain(
    'because the limit “traffic” of 5,000 tokens a month of the plan “pro” had 1,220 left, less than the request needed; the request would have passed',
  );
  expect(explain(of(50), { meter: 'requests' })).toContain('of 50 requests of the plan “pro” was used up, with 0 left;');
  expect(explain(gb)).toContain('the limit “traffic” (10,000,000,000) of the plan “pro” was used up, with 0 left;');
  expect(short(tokens)).toBe('The limit “traffic” (5,000) of the plan “pro” had 1,220 left, less than the request needed');
  expect(leftThen(mib, { meter: 'bytes_in' })).toBe('1,536 KiB of 5 MiB of requests');
  expect(leftThen(gb, { meter: 'bytes_out' })).toBe('0 of 10 GB of responses');
  expect(leftThen(tokens, { meter: 'tokens' })).toBe('1,220 of 5,000 tokens');
  expect(leftThen(gb, {})).toBe('0 of 10,000,000,000');
  expect(leftThen(request(429, { ...limited, limit_scope: 'key' }), {})).toBe('0 of 50 requests');
});

test('short leaves out when a request would have passed', () => {
  expect(short(request(429, { ...limited, limit_scope: 'route' }))).toBe('The limit of 50 requests for the route was used up, with 0 left');
});
