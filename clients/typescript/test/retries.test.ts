import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { Keygate, KeygateError, UnreachableError } from '@keygate/client';
import { Stub } from './server.js';

const stub = await Stub.start();
const client = new Keygate({ url: `${stub.url}/base/`, key: 'kga_test' });
const create = () => client.keys.create({ name: 'a', scope: 'read', level: 'account' });

beforeEach(() => (stub.requests.length = 0));
after(() => stub.stop());

type Answer = number | 'lost' | 'cut';

// answers makes the stub give answers, and the last one from then on.
function answers(...list: Answer[]) {
  stub.answer = (request, response) => {
    const one = list.length > 1 ? list.shift()! : list[0]!;
    if (one === 'lost') return void request.socket.destroy();
    if (one === 'cut') {
      response.writeHead(200, { 'Content-Length': '100' });
      return void response.write('{"key_id":', () => request.socket.destroy());
    }
    response.writeHead(one, { 'Content-Type': 'application/json' });
    response.end(
      one < 300
        ? '{"key_id":"key_1"}'
        : JSON.stringify({ error: 'unavailable', message: 'no', field: one === 409 ? 'Idempotency-Key' : undefined }),
    );
  };
}

// Guarantee (edge.md, section 7): lost connections, 429 and 5xx of GET, and of POST with its idempotency key, which stays the same, are
// tried at most four times; nothing else is tried again.
test('what is tried again', async () => {
  for (const failure of ['lost', 'cut', 429, 500, 503] as Answer[]) {
    for (const call of [() => client.keys.get('key_1'), create]) {
      stub.requests.length = 0;
      answers(failure, failure, failure, 200);
      assert.equal((await call()).key_id, 'key_1');
      assert.equal(stub.requests.length, 4);
      assert.equal(new Set(stub.requests.map((r) => r.headers['idempotency-key'])).size, 1);
      assert.equal(new Set(stub.requests.map((r) => r.body)).size, 1);
      stub.requests.length = 0;
      answers(failure);
      await assert.rejects(call(), typeof failure === 'number' ? KeygateError : UnreachableError);
      assert.equal(stub.requests.length, 4);
    }
    for (const call of [
      () => client.keys.update('key_1', { name: 'b' }),
      () => client.keys.revoke('key_1'),
      () => client.gateways.try('gw_1', { method: 'GET', path: '/' }),
    ]) {
      stub.requests.length = 0;
      answers(failure, 200);
      await assert.rejects(call());
      assert.equal(stub.requests.length, 1);
    }
  }
  for (const status of [400, 401, 403, 404, 409, 412, 422]) {
    stub.requests.length = 0;
    answers(status);
    await assert.rejects(create(), (e) => e instanceof KeygateError && e.status === status);
    assert.equal(stub.requests.length, 1);
  }
});

// Guarantee: a POST whose first attempt is still running at the server, since its connection was lost, is waited for.
test('a first attempt that still runs', async () => {
  answers('lost', 409, 200);
  assert.equal((await create()).key_id, 'key_1');
  assert.equal(stub.requests.length, 3);
});

// Guarantee: a redirect is not followed, since it would send the key elsewhere; what is no answer of Keygate is an error.
test('redirects and other servers', async () => {
  const other = await Stub.start();
  stub.answer = (_request, response) => response.writeHead(307, { Location: `${other.url}/v1/keys/key_1` }).end();
  await assert.rejects(client.keys.get('key_1'), (e) => e instanceof KeygateError && e.status === 307);
  assert.equal(other.requests.length, 0);
  await other.stop();
  stub.answer = (_request, response) => response.writeHead(404).end('<html>nothing here</html>');
  await assert.rejects(client.keys.get('key_1'), (e) => e instanceof KeygateError && e.code === '' && !e.message.includes('html'));
  stub.answer = (_request, response) => response.end('<html>');
  await assert.rejects(client.keys.get('key_1'), SyntaxError);
});

// Guarantee: a Retry-After is waited for, and one that is too long is the caller's to wait for.
test('Retry-After', async () => {
  stub.answer = (_request, response) =>
    response.writeHead(429, { 'Retry-After': '3600' }).end('{"error":"rate_limit_exceeded","message":"wait"}');
  await assert.rejects(client.keys.get('key_1'), (e) => e instanceof KeygateError && e.retryAfter === 3600);
  assert.equal(stub.requests.length, 1);
});

// Guarantee: a signal ends a call and its waiting, and a timeout ends an attempt.
test('signals and timeouts', async () => {
  const ends = new AbortController();
  stub.answer = () => ends.abort(new Error('enough'));
  await assert.rejects(client.keys.get('key_1', { signal: ends.signal }), /enough/);
  stub.answer = (_request, response) => response.writeHead(503, { 'Retry-After': '20' }).end('{}');
  const waits = new AbortController();
  const call = client.keys.get('key_1', { signal: waits.signal });
  while (stub.requests.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  waits.abort(new Error('stop'));
  await assert.rejects(call, /stop/);
  stub.answer = () => undefined;
  await assert.rejects(client.keys.revoke('key_1', { timeout: 50 }), (e) => e instanceof UnreachableError && /50 ms/.test(e.message));
});

// Guarantee: a list that leads back to an earlier page ends with an error, and does not run for ever.
test('a list without an end', async () => {
  stub.answer = (_request, response) => response.end('{"data":[{"key_id":"key_1"}],"next_cursor":"again"}');
  await assert.rejects(client.keys.list().all(), /next_cursor twice/);
  assert.equal(stub.requests.length, 2);
  assert.equal(stub.requests[1]!.url, '/base/v1/keys?cursor=again');
});

// Guarantee: an event of a stream that does not end is an error, and does not fill the memory, however short its lines are.
test('an event without an end', async () => {
  const line = `data: ${'x'.repeat(1000)}\n`.repeat(64);
  stub.answer = (_request, response) => {
    const write = () => {
      while (!response.destroyed && response.write(line));
      if (!response.destroyed) response.once('drain', write);
    };
    write();
  };
  await assert.rejects(
    client.traffic.streamRequests().next(),
    (e) => e instanceof UnreachableError && /event of the stream is too long/.test(e.message),
  );
});

// Guarantee: what a caller gives is one segment of the path, or one value of the query.
test('paths and queries', async () => {
  answers(200);
  await client.keys.get('a/b?c#d');
  await client.keys.list({ q: 'a&limit=1', limit: 5 }).page();
  assert.deepEqual(
    stub.requests.map((r) => r.url),
    ['/base/v1/keys/a%2Fb%3Fc%23d', '/base/v1/keys?q=a%26limit%3D1&limit=5'],
  );
});
