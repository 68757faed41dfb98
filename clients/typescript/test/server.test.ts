import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import { gzipSync } from 'node:zlib';
import { etagOf, Keygate, KeygateError, SignatureError, UnreachableError, verifyWebhook } from '@keygate/client';
import { Server, Stub } from './server.js';

let server: Server;
let client: Keygate;

before(async () => {
  server = await Server.start();
  client = new Keygate({ url: server.url, key: server.key });
});
after(() => server.stop());

// Guarantee (edge.md, section 7): the package has no runtime dependency, and its code at most 15 KB after gzip.
test('the package is small', () => {
  const dir = new URL('../node_modules/@keygate/client/', import.meta.url);
  const code = readdirSync(new URL('dist/', dir)).filter((name) => name.endsWith('.js'));
  const size = gzipSync(Buffer.concat(code.map((name) => readFileSync(new URL(`dist/${name}`, dir))))).length;
  assert.ok(code.length > 3 && size <= 15_000, `${code.length} modules of ${size} bytes`);
  assert.equal(JSON.parse(readFileSync(new URL('package.json', dir), 'utf8')).dependencies, undefined);
});

// Guarantee: a program creates a gateway and a key, changes, lists and revokes it, and each call has the effect that its name says.
test('keys and gateways', async () => {
  const upstream = await Stub.start();
  try {
    const gateway = await client.gateways.create({ name: 'orders', upstream_url: upstream.url });
    await client.documents.putConfig(gateway.gateway_id, 'routes: [{path: /orders, methods: [GET]}]');
    assert.match(await client.documents.getConfig(gateway.gateway_id), /\/orders/);
    const key = await client.keys.create({ name: 'mobile', scope: 'read', level: 'gateway', gateway_id: gateway.gateway_id });
    const call = () => fetch(`${server.gateway}/orders`, { headers: { Authorization: `Bearer ${key.key}`, Connection: 'close' } });
    assert.equal((await call()).status, 200);

    const read = await client.keys.get(key.key_id);
    assert.equal(read.name, 'mobile');
    const etag = etagOf(read);
    assert.ok(etag);
    const renamed = await client.keys.update(key.key_id, { name: 'web' }, { ifMatch: etag });
    assert.equal(renamed.name, 'web');
    await assert.rejects(
      client.keys.update(key.key_id, { name: 'late' }, { ifMatch: etag }),
      (e) => e instanceof KeygateError && e.status === 412,
    );

    await client.keys.revoke(key.key_id);
    assert.equal((await call()).status, 401);
    assert.equal((await client.keys.get(key.key_id)).state, 'revoked');
    const requests = await client.traffic.listRequests({ gateway_id: gateway.gateway_id }).all();
    assert.ok(requests.length >= 1);
  } finally {
    await upstream.stop();
  }
});

// Guarantee: a loop over a list has each record once, whatever the size of the pages.
test('pages', async () => {
  const made = new Set<string>();
  for (let i = 0; i < 7; i++) made.add((await client.keys.create({ name: `page ${i}`, scope: 'read', level: 'account' })).key_id);
  for (const limit of [1, 3, 100]) {
    const got: string[] = [];
    for await (const key of client.keys.list({ limit })) got.push(key.key_id);
    assert.equal(new Set(got).size, got.length);
    for (const one of made) assert.ok(got.includes(one));
  }
  const first = await client.keys.list({ limit: 2 }).page();
  assert.equal(first.data!.length, 2);
  const second = await client.keys.list({ limit: 2 }).page(first.next_cursor!);
  assert.notEqual(second.data![0]!.key_id, first.data![0]!.key_id);
  assert.equal((await client.keys.list().all(3)).length, 3);
});

// Guarantee: a POST with an idempotency key has its effect once.
test('idempotency keys', async () => {
  const idempotencyKey = 'once-1';
  const a = await client.keys.create({ name: 'once', scope: 'read', level: 'account' }, { idempotencyKey });
  const b = await client.keys.create({ name: 'once', scope: 'read', level: 'account' }, { idempotencyKey });
  assert.equal(a.key_id, b.key_id);
  assert.ok(a.key);
  assert.equal(b.key, undefined);
});

// Guarantee: an error says what is wrong, where, and which request it was; it never has the key.
test('errors', async () => {
  await assert.rejects(client.keys.create({ name: '', scope: 'read', level: 'account' }), (e) => {
    assert.ok(e instanceof KeygateError);
    assert.deepEqual([e.status, e.code, e.field], [422, 'validation_failed', 'name']);
    assert.ok(e.problems.length > 0 && e.requestId);
    return true;
  });
  await assert.rejects(client.keys.get('key_unknown'), (e) => e instanceof KeygateError && e.status === 404 && e.code === 'not_found');
  const wrong = new Keygate({ url: server.url, key: 'kga_wrong' });
  await assert.rejects(wrong.account.get(), (e) => e instanceof KeygateError && e.status === 401 && e.code === 'key_invalid');
  for (const id of ['', '.', '..']) assert.throws(() => client.keys.get(id), TypeError);
  await assert.rejects(new Keygate({ url: 'http://127.0.0.1:1', key: server.key }).account.get(), (e) => {
    assert.ok(e instanceof UnreachableError);
    assert.ok(!inspect(e).includes(server.key));
    return true;
  });
  for (const url of ['', 'ftp://x', 'http://', 'http://a:b@c', 'http://a?b'])
    assert.throws(() => new Keygate({ url, key: 'k' }), TypeError);
  for (const key of ['', 'a b', 'a\n']) assert.throws(() => new Keygate({ url: 'http://a', key }), TypeError);
  assert.ok(!inspect(client, { depth: 9 }).includes(server.key) && !JSON.stringify(client).includes(server.key));
});

// Guarantee: an export is the bytes that the server sends, and a stream has each refused request.
test('exports and streams', async () => {
  const stream = await client.auditLog.export({ format: 'csv' });
  let csv = '';
  for await (const chunk of stream.pipeThrough(new TextDecoderStream())) csv += chunk;
  assert.match(csv, /^time,/);

  const ends = new AbortController();
  const requests = client.traffic.streamRequests({}, { signal: ends.signal });
  const next = requests.next();
  const nobody = async () => {
    for (;;) {
      await fetch(`${server.gateway}/nobody`);
      const got = await Promise.race([next, new Promise((resolve) => setTimeout(resolve, 200))]);
      if (got) return (got as Awaited<typeof next>).value;
    }
  };
  const event = await nobody();
  assert.equal(event!.event, 'request');
  assert.equal(event!.data.path, '/nobody');
  ends.abort();
  await assert.rejects(async () => {
    for (;;) if ((await requests.next()).done) throw new Error('ended');
  });
});

// Guarantee (contract, section 6): what the server delivers verifies with its secret, and nothing else does.
test('webhooks', async () => {
  const receiver = await Stub.start();
  try {
    receiver.answer = (_request, response) => response.writeHead(204).end();
    const webhook = await client.webhooks.create({ url: `${receiver.url}/hook`, events: ['key.created'] });
    const secret = webhook.signing_secret!;
    await client.webhooks.test(webhook.webhook_id);
    for (let i = 0; receiver.requests.length === 0; i++) {
      assert.ok(i < 1200, 'the delivery arrives');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const { headers, body } = receiver.requests[0]!;
    const event = await verifyWebhook(body, headers, secret);
    assert.equal(event.type, 'webhook.test');
    await verifyWebhook(new TextEncoder().encode(body), new Headers(headers as Record<string, string>), secret);
    const refused: [string, typeof headers, string, object?][] = [
      [body + ' ', headers, secret],
      [body, headers, `${secret}x`],
      [body, {}, secret],
      [body, { ...headers, 'webhook-id': 'evt_other' }, secret],
      [body, { ...headers, 'x-service-signature': 'sha256=' }, secret],
      [body, { ...headers, 'webhook-signature': 'v1,' }, secret],
      [body, { ...headers, 'webhook-timestamp': '1e9' }, secret],
      [body, headers, secret, { now: new Date(Date.now() + 301_000) }],
      [body, headers, secret, { now: new Date(Date.now() - 301_000) }],
    ];
    for (const [b, h, s, o] of refused) await assert.rejects(verifyWebhook(b, h, s, o), SignatureError);
    await assert.rejects(verifyWebhook(body, headers, ''), TypeError);
  } finally {
    await receiver.stop();
  }
});
