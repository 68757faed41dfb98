// Plays one part as an HTTP/2 client of a gateway:
//   node http2client.js PART URL KEY [CERTIFICATE]
// It fails if what it gets is not what it wants.
'use strict';
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http2 = require('node:http2');
const zlib = require('node:zlib');

const [part, url, key, certificate] = process.argv.slice(2);
const session = http2.connect(url, certificate ? { ca: fs.readFileSync(certificate) } : {});

// request sends a request, whose head and end are those of the options, and returns its stream.
function request(path, head = {}, options = {}) {
  return session.request({ ':path': path, authorization: 'Bearer ' + key, ...head }, options);
}

// response waits for the whole response of a stream.
async function response(stream) {
  const got = { status: 0, body: '', trailers: {} };
  const parts = [];
  stream.on('response', (head) => { got.status = head[':status']; });
  stream.on('trailers', (trailers) => { got.trailers = trailers; });
  stream.on('data', (data) => parts.push(data));
  await ended(stream);
  got.body = Buffer.concat(parts).toString();
  return got;
}

// ended waits until a stream is closed without an error.
function ended(stream) {
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    stream.on('close', resolve);
  });
}

// event waits for an event.
const event = (emitter, name) => new Promise((resolve) => { emitter.once(name, resolve); });

const checksum = (bytes) => zlib.crc32(bytes).toString(16).padStart(8, '0');

// upload sends a body of random bytes and checks that it arrives.
async function upload(length) {
  const body = crypto.randomBytes(length);
  const stream = request('/x', { ':method': 'POST' });
  const whole = response(stream);
  stream.end(body);
  const got = await whole;
  assert.equal(got.status, 200);
  assert.ok(got.body.endsWith(` POST ${length} ${checksum(body)} \n`), got.body);
}

const parts = {
  async 'requests in parallel'() {
    const all = await Promise.all(Array.from({ length: 300 }, () => response(request('/x'))));
    for (const got of all) {
      assert.equal(got.status, 200);
      assert.match(got.body, /^HTTP\/\S+ GET 0 00000000 \n$/);
    }
  },

  async 'uploads in parallel'() {
    await Promise.all([0, 1, 1000, 65535, 65536, 300000, 1 << 20, 3 << 20].map(upload));
  },

  async Expect() {
    const stream = request('/x', { ':method': 'POST', expect: '100-continue' });
    const whole = response(stream);
    await event(stream, 'continue');
    stream.end('body');
    assert.match((await whole).body, / POST 4 [0-9a-f]{8} \n$/);
  },

  async trailers() {
    const stream = request('/x', { ':method': 'POST', te: 'trailers', trailer: 'x-sum' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '7' }));
    const got = response(stream);
    stream.end('body');
    const { status, body, trailers } = await got;
    assert.equal(status, 200);
    assert.match(body, / POST 4 [0-9a-f]{8} 7\n$/);
    assert.equal(trailers['x-length'], '4');
  },

  // The response comes before the body has ended, which never does.
  async 'early response'() {
    for (const [path, status] of [['/early', 403], ['/refused', 401]]) {
      const stream = request(path, { ':method': 'POST', ...(status === 401 && { authorization: 'Bearer wrong' }) });
      const got = response(stream);
      stream.write(crypto.randomBytes(1 << 20));
      assert.equal((await got).status, status);
      assert.equal(stream.rstCode, http2.constants.NGHTTP2_NO_ERROR);
      await upload(1000);
    }
  },

  async 'reset in mid-response'() {
    for (let i = 0; i < 5; i++) {
      const stream = request('/endless');
      await event(stream, 'data');
      stream.close(http2.constants.NGHTTP2_CANCEL);
      await ended(stream);
      await upload(100000);
    }
  },

  async 'slow reader beside others'() {
    const slow = request('/long');
    const head = await event(slow, 'response'); // and nothing of the body is read
    await Promise.all([upload(300000), upload(300000), response(request('/x'))]);
    assert.equal(checksum((await response(slow)).body), head['x-checksum']);
  },

  async WebSocket() {
    const settings = await event(session, 'remoteSettings');
    assert.equal(settings.enableConnectProtocol, true);
    const stream = request('/ws', { ':method': 'CONNECT', ':protocol': 'websocket', 'sec-websocket-version': '13', origin: url });
    const head = await event(stream, 'response');
    assert.equal(head[':status'], 200);
    const data = stream[Symbol.asyncIterator]();
    for (const text of ['one', 'two', 'x'.repeat(100)]) {
      const mask = crypto.randomBytes(4);
      stream.write(Buffer.of(0x81, 0x80 | text.length, ...mask, ...Buffer.from(text).map((byte, i) => byte ^ mask[i % 4])));
      const want = Buffer.of(0x81, text.length, ...Buffer.from(text));
      let got = Buffer.alloc(0);
      while (got.length < want.length) {
        got = Buffer.concat([got, (await data.next()).value]);
      }
      assert.deepEqual(got, want);
    }
    stream.end();
    assert.equal((await data.next()).done, true);
  },

  // The test stops the gateway after the first line, and ends the responses after the second.
  async drain() {
    const streams = Array.from({ length: 5 }, () => request('/wait'));
    const responses = streams.map(response);
    await Promise.all(streams.map((stream) => event(stream, 'response')));
    console.log('under way');
    await event(session, 'goaway');
    console.log('goaway');
    for (const got of await Promise.all(responses)) {
      assert.deepEqual(got, { status: 200, body: 'released\n', trailers: {} });
    }
    await closed;
  },
};

const closed = event(session, 'close');
session.on('error', (err) => { throw err; });
session.on('connect', async () => {
  await parts[part]();
  session.close();
});
