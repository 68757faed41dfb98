import { expect, test } from 'vitest';
import type { Schemas } from '../api/client';
import { claimText, createBody, createFlags, decode, flagsOf, issuerFile, newIssuer, updateBody, valuesOf } from './issuer';

const record: Schemas['Issuer'] = {
  issuer_id: 'iss_01jz8y5c3te9b8r2m6q4v7x0bb',
  name: 'login',
  issuer: 'https://login.example.com/',
  jwks_url: null,
  jwks: null,
  ca: null,
  audiences: ['https://api.example.com', 'a, b'],
  algorithms: ['ES384', 'RS256'],
  leeway: '30s',
  max_lifetime: '1h',
  typ: 'at+jwt',
  required: { tenant: 't1', level: [1, 2.5], verified: true, quoted: 'true', empty: '' },
  claims: { scope: 'realm_access.roles', owner: 'org_id', plan: null },
  scope_map: { 'order=admin': 'write:orders' },
  default_scopes: ['read', 'read:orders'],
  owner_prefix: 'login/',
  claim_headers: { 'X-Email': 'email' },
  forward_token: true,
  state: 'ok',
  last_error: null,
  keys: [],
  created_at: '2026-07-01T12:00:00Z',
};

// Guarantee: a call for a new issuer has what was typed, and nothing that is the default.
test('only what differs from the default is sent', () => {
  expect(createBody({ ...newIssuer, name: ' login ', issuer: 'https://a.example', audiences: 'api\n' })).toEqual({
    name: 'login',
    issuer: 'https://a.example',
    audiences: ['api'],
  });
  expect(createBody(newIssuer)).toEqual({ name: '', issuer: '', audiences: [] });
  expect(createBody({ ...newIssuer, keys: 'given', jwks: '{"keys": []}', jwks_url: 'https://left.example', prefix: 'none' })).toMatchObject(
    { jwks: { keys: [] }, owner_prefix: '' },
  );
  expect(createBody({ ...newIssuer, keys: 'given', jwks: 'no JSON' })).toMatchObject({ jwks: 'no JSON' });
  expect(createBody({ ...newIssuer, algorithms: [] })).toMatchObject({ algorithms: [] });
});

// Guarantee: whatever an issuer has, the form shows it, and would send the same.
test('an issuer is shown and sent as it is', () => {
  const { issuer_id: _, created_at: __, state: ___, last_error: ____, keys: _____, ...settings } = record;
  const { plan: ______, ...claims } = settings.claims;
  const { jwks_url: a, jwks: b, ca: c, owner_prefix: d, ...rest } = settings;
  expect([a, b, c, d]).toEqual([null, null, null, 'login/']);
  expect(createBody(valuesOf(record))).toEqual({ ...rest, algorithms: ['RS256', 'ES384'], claims });
  for (const owner_prefix of ['', 'x', 'login/']) {
    const body = createBody(valuesOf({ ...record, owner_prefix }));
    expect(body.owner_prefix).toBe(owner_prefix === 'login/' ? undefined : owner_prefix);
  }
});

// Guarantee: a value of a claim that is typed as it is shown is the same value, also an integer beyond 2^53.
test('values of claims are read as they are shown', () => {
  for (const value of ['a', '', ' a ', 'true', '1', 'null', '"', 1, 1.5, true, ['a', 1], 12345678901234567890n]) {
    const typed = { ...newIssuer, required: [['c', claimText(value)] as [string, string]] };
    expect((createBody(typed).required as Record<string, unknown>).c).toEqual(value);
  }
});

// Guarantee: a change sends the fields that were touched; the keys change from one source to another in one call.
test('a change sends what was touched', () => {
  const before = valuesOf(record);
  const change = (part: Partial<typeof before>, of = record) => updateBody(part, { ...valuesOf(of), ...part }, of);
  expect(change({})).toEqual({});
  expect(change({ leeway: ' ' })).toEqual({ leeway: null });
  expect(change({ keys: 'url', jwks_url: 'https://a.example/keys' })).toEqual({ jwks_url: 'https://a.example/keys' });
  const given = { ...record, jwks: { keys: [] } };
  expect(change({ keys: 'discovery' }, given)).toEqual({ jwks: null });
  expect(change({ keys: 'url', jwks_url: 'u' }, given)).toEqual({ jwks_url: 'u', jwks: null });
  expect(change({ owner_claim: '' })).toEqual({ claims: { scope: 'realm_access.roles' } });
  expect(change({ prefix: 'none' })).toEqual({ owner_prefix: '' });
  expect(change({ default_scopes: '', scope_map: [], required: [], claim_headers: [] })).toEqual({
    required: {},
    scope_map: {},
    default_scopes: null,
    claim_headers: {},
  });
});

// Guarantee: the command line and the file do what the form does.
test('an issuer as code', () => {
  const v = { ...newIssuer, name: 'login', issuer: 'https://a.example', audiences: 'api', owner_claim: 'org id', forward_token: true };
  expect(createFlags(createBody(v)).join(' ')).toBe("--issuer https://a.example --audience api --forward-token --owner-claim 'org id'");
  expect(issuerFile(v)).toBe(
    'issuers:\n  - name: "login"\n    issuer: "https://a.example"\n    audiences: ["api"]\n    claims: {"owner":"org id"}\n    forward_token: true\n',
  );
  expect(
    flagsOf(
      { jwks: { keys: [] }, jwks_url: null, required: { a: 'true', b: [1] }, scope_map: {}, owner_prefix: null, algorithms: ['ES384'] },
      'login',
    ).join(' '),
  ).toBe(`--jwks jwks.json --jwks-url '' --required 'a="true"' --required 'b=[1]' --scope-map '' --owner-prefix login/ --algorithm ES384`);
  expect(flagsOf({ claims: { scope: 'roles' }, forward_token: false }, 'login').join(' ')).toBe(
    "--scope-claim roles --owner-claim '' --plan-claim '' --forward-token=false",
  );
});

// Guarantee: the browser reads what a token says, and nothing of a text that is no token.
test('a token is read in the browser', () => {
  const part = (text: string) =>
    btoa(String.fromCharCode(...new TextEncoder().encode(text)))
      .replaceAll('+', '-')
      .replaceAll('/', '_')
      .replaceAll('=', '');
  expect(decode(` ${part('{"alg":"RS256"}')}.${part('{"sub":"ä~ÿ?","n":12345678901234567890}')}.sig\n`)).toEqual({
    header: { alg: 'RS256' },
    claims: { sub: 'ä~ÿ?', n: 12345678901234567890n },
  });
  for (const text of [
    '',
    'a.b',
    'a.b.c',
    `${part('{}')}.${part('[]')}.x`,
    `${part('{}')}.${part('1')}.x`,
    `${part('{}')}.!!!.x`,
    'a.b.c.d',
  ])
    expect(decode(text)).toBeNull();
});
