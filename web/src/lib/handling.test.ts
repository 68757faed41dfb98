import { expect, test } from 'vitest';
import { bodyOf, flagsOf, handlingOf, wordsOf } from './handling';

const none = { strip_prefix: null, redirect: null, respond: null };

test('what a route does comes back as it was', () => {
  for (const route of [
    none,
    { ...none, strip_prefix: '/api' },
    { ...none, redirect: { to: 'https://example.com', status: 308, keep_path: true, keep_query: false } },
  ]) {
    expect(bodyOf(handlingOf(route))).toEqual(route);
  }
  const respond = { status: 410, content_type: 'text/plain', body: 'a\n', headers: { 'X-A': 'b: c' } };
  expect(bodyOf(handlingOf({ ...none, respond }))).toEqual({ ...none, respond });
  expect(bodyOf(handlingOf({ ...none, respond: { status: 204, content_type: null, body: '', headers: {} } }))).toEqual({
    ...none,
    respond: { status: 204 },
  });
});

test('flags do the same', () => {
  expect(flagsOf(handlingOf(none))).toBe("--strip-prefix '' --redirect '' --respond ''");
  expect(flagsOf(handlingOf({ ...none, redirect: { to: '/b', status: 302, keep_path: false, keep_query: true } }))).toBe(
    "--strip-prefix '' --redirect '302 /b' --redirect-keep-query --respond ''",
  );
});

test('it is said in words', () => {
  expect(wordsOf(none)).toMatch(/as it came/);
  expect(wordsOf({ ...none, strip_prefix: '/api' })).toMatch(/without \/api/);
  expect(wordsOf({ ...none, redirect: { to: '/b', status: 302, keep_path: true, keep_query: true } })).toBe(
    'Requests are redirected to /b, with the path and the query of the request (status 302).',
  );
  expect(wordsOf({ ...none, respond: { status: 204, content_type: null, body: '', headers: {} } })).toMatch(/status 204 and no body/);
});
