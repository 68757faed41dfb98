import { act } from 'react';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { runHook } from '../test/hook';

// The state of the connection is that of the page, so each test loads the modules anew.
const load = async () => ({ ...(await import('./session')), ...(await import('./client')), queries: (await import('./hooks')).queries });

type Reply = [status: number, body: unknown] | 'unreachable';
let reply: Reply;
const sent = vi.fn((address: string, { method = 'GET' }: RequestInit = {}) => {
  void [address, method];
  if (reply === 'unreachable') return Promise.reject(new TypeError('failed to fetch'));
  const [status, body] = reply;
  const json = { 'Content-Type': 'application/json' };
  return Promise.resolve(status === 204 ? new Response(null, { status }) : new Response(JSON.stringify(body), { status, headers: json }));
});
const account = (id: string) => ({ account_id: id, name: id, key: { scope: 'read' } });
const unauthorized: Reply = [401, { error: 'unauthorized', message: 'the session has ended' }];

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  vi.stubGlobal('fetch', sent);
  sent.mockClear();
  localStorage.setItem('keygate-session', 'acc_1');
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

// Guarantee: without a session the page asks for a key, and sends no call that would be refused.
test('a page without a session sends nothing', async () => {
  localStorage.clear();
  const { api, useConnection } = await load();
  const run = runHook(() => useConnection(), null);
  expect(run.now).toEqual({ ended: true, unreachable: false });
  await expect(api.get('/v1/keys')).rejects.toMatchObject({ status: 401 });
  expect(sent).not.toHaveBeenCalled();
  run.end();
});

// Guarantee: a call that is refused with 401 ends the session on every page of the browser.
test('a refused call ends the session', async () => {
  const { api, useConnection } = await load();
  const run = runHook(() => useConnection(), null);
  expect(run.now.ended).toBe(false);
  reply = unauthorized;
  await act(async () => expect(api.get('/v1/keys')).rejects.toMatchObject({ kind: 'unauthorized' }));
  expect(run.now.ended).toBe(true);
  expect(localStorage.getItem('keygate-session')).toBeNull();
  run.end();
});

// Guarantee: what another page of the browser does with the session holds here as well, and another account sees
// nothing of the last one.
test('pages of one browser share the session', async () => {
  const { queries, useConnection } = await load();
  const run = runHook(() => useConnection(), null);
  const store = (newValue: string | null) =>
    act(async () => void window.dispatchEvent(new StorageEvent('storage', { key: 'keygate-session', newValue })));
  queries.setQueryData(['/v1/account', {}, {}], { data: account('acc_1'), etag: null });
  queries.setQueryData(['/v1/keys', {}, {}], { data: 'keys of acc_1', etag: null });
  await store(null);
  expect(run.now.ended).toBe(true);
  await store('acc_1');
  expect(run.now.ended).toBe(false);
  expect(queries.getQueryData(['/v1/keys', {}, {}])).toBeDefined();
  await store('acc_2');
  expect(queries.getQueryData(['/v1/keys', {}, {}])).toBeUndefined();
  run.end();
});

// Guarantee: signing in begins a session and keeps no key; a sign-in that is refused changes nothing; signing out
// forgets what was read.
test('signing in and out', async () => {
  localStorage.clear();
  const { queries, signIn, signOut, useConnection } = await load();
  const run = runHook(() => useConnection(), null);
  reply = unauthorized;
  await act(async () => expect(signIn('kga_wrong')).rejects.toMatchObject({ status: 401 }));
  expect(run.now.ended).toBe(true);
  reply = [201, account('acc_1')];
  await act(() => signIn('kga_right'));
  expect(run.now.ended).toBe(false);
  expect(JSON.stringify({ ...localStorage })).not.toContain('kga_');
  queries.setQueryData(['/v1/keys', {}, {}], { data: 'keys of acc_1', etag: null });
  reply = [204, null];
  await act(() => signOut());
  expect(run.now.ended).toBe(true);
  expect(queries.getQueryData(['/v1/keys', {}, {}])).toBeUndefined();
  run.end();
});

// Guarantee: while the server is away it is asked again, less and less often, until it answers.
test('the page finds the server again', async () => {
  const { api, useConnection } = await load();
  const run = runHook(() => useConnection(), null);
  reply = 'unreachable';
  await act(async () => expect(api.get('/v1/keys')).rejects.toMatchObject({ kind: 'unreachable' }));
  expect(run.now).toEqual({ ended: false, unreachable: true });
  sent.mockClear();
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  expect(run.now.unreachable).toBe(true);
  expect(sent.mock.calls.length).toBeGreaterThan(10);
  expect(sent.mock.calls.length).toBeLessThan(20);
  reply = [200, account('acc_1')];
  await act(() => vi.advanceTimersByTimeAsync(5_000));
  expect(run.now.unreachable).toBe(false);
  sent.mockClear();
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  expect(sent).not.toHaveBeenCalled();
  run.end();
});

// Guarantee: what the page shows as forbidden is what the API refuses (contract, section 3).
test.each([
  ['read', 'read', 'keys', true],
  ['read', 'write', 'keys', false],
  ['write', 'read', 'keys', true],
  ['write', 'admin', 'keys', false],
  ['admin', 'admin', '', true],
  ['read write:keys', 'write', 'keys', true],
  ['read write:keys', 'write', 'keys/key_1', true],
  ['read write:keys', 'write', 'keysets', false],
  ['read write:keys', 'write', 'gateways', false],
  ['write:/gateways/gw_1/', 'write', 'gateways/gw_1/routes', true],
  ['write:gateways/gw_1', 'write', 'gateways/gw_2', false],
  ['write:keys', 'read', '', false],
  ['', 'read', 'keys', false],
] as const)('the scope "%s" and %s of %s', async (scope, word, path, allowed) => {
  const { refusal } = await load();
  const why = refusal(scope, word, path);
  expect(why === null).toBe(allowed);
  if (!allowed) expect(why).toContain(`“${word}”`);
});

test.each([
  ['read', 'read'],
  ['read write:keys', 'write'],
  ['admin:keys read', 'admin'],
] as const)('the greatest word of "%s"', async (scope, word) => expect((await load()).wordOf(scope)).toBe(word));
