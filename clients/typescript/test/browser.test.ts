import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { chromium } from '@playwright/test';
import { Server } from './server.js';

// Guarantee (edge.md, section 7): the package works in a browser as it is, on a page of the management API's origin.
test('in a browser', async () => {
  const server = await Server.start();
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  try {
    const page = await browser.newPage();
    await page.route(`${server.url}/page/**`, (route) => {
      const name = new URL(route.request().url()).pathname.slice('/page/'.length);
      if (name === '') return route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>page</title>' });
      const body = readFileSync(new URL(`../node_modules/@keygate/client/dist/${name}`, import.meta.url));
      return route.fulfill({ contentType: 'text/javascript', body });
    });
    await page.goto(`${server.url}/page/`);
    const got = await page.evaluate(
      async ([url, key]) => {
        const { Keygate, KeygateError, verifyWebhook } = await import(`${url}/page/index.js`);
        const client = new Keygate({ url, key });
        const made = await client.keys.create({ name: 'browser', scope: 'read', level: 'account' });
        const names = [];
        for await (const one of client.keys.list({ limit: 1 })) names.push(one.name);
        const missing = await client.keys.get('key_unknown').catch((e: Error) => e);
        const signed = await verifyWebhook('{}', {}, 'secret').catch((e: Error) => e.name);
        return { key: made.key, names, missing: missing instanceof KeygateError && missing.status, signed };
      },
      [server.url, server.key] as const,
    );
    assert.match(got.key, /^kga_/);
    assert.ok(got.names.includes('browser'));
    assert.equal(got.missing, 404);
    assert.equal(got.signed, 'SignatureError');
  } finally {
    await browser.close();
    await server.stop();
  }
});
