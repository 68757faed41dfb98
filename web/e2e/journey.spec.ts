import { expect, Keygate, signIn, test } from './keygate';

// Guarantee: someone who has never seen Keygate reaches a 200, a 429 that is explained, and a delivery that is made
// again, by clicking only, and meets no 404 on the way.
test('the first journey, by clicking only', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  let broken = true;
  upstream.handler = (request, _body, response) => {
    response.statusCode = request.url === '/hook' && broken ? 500 : 200;
    response.end('hello');
  };
  const missing: string[] = [];
  page.on('response', (r) => {
    if (r.status() === 404 && !r.url().endsWith('/repository')) missing.push(r.url());
  });
  const main = page.getByRole('main');
  await signIn(page, keygate);

  // A gateway, without a document.
  await main.getByRole('link', { name: 'Create a gateway' }).click();
  await page.getByLabel('Name').fill('shop');
  await page.getByLabel('Upstream').fill(upstream.url);
  await page.getByRole('button', { name: 'Create the gateway' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'shop' })).toBeVisible();
  await expect(page.getByRole('region', { name: 'No routes' })).toHaveCount(0);

  // A key that may call once an hour.
  await main.getByRole('link', { name: 'Create a key' }).click();
  const form = page.getByRole('dialog', { name: 'Create a key' });
  await form.getByLabel('Name', { exact: true }).fill('me');
  await form.getByLabel('Sustained').fill('1/h');
  await form.getByRole('button', { name: 'Create the key' }).click();
  const key = (await page.locator('[data-secret]').textContent()) ?? '';
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();

  // The first call leads from the overview to the page of the gateway.
  await page.getByRole('link', { name: 'Keygate: overview' }).click();
  await page.getByRole('link', { name: 'Or try it on the page of the gateway' }).click();
  await page.getByLabel('Key of the caller').fill(key);
  const send = page.getByRole('button', { name: 'Send' });
  const response = page.getByRole('region', { name: 'Response' });
  await send.click();
  await expect(response).toContainText('200');
  await expect(response.getByLabel('Body of the response', { exact: true })).toHaveText('hello');

  // The second call is too many.
  await send.click();
  await expect(response).toContainText('429');
  await expect(response).toContainText(`the limit of 1 request for the key ${key.slice(0, 9)}… was used up`);
  await response.getByRole('link', { name: 'Why, in full' }).click();
  await expect(page.locator('[data-explanation]')).toContainText('the request would have passed at');

  // A webhook that fails, and is delivered after its receiver was mended.
  const nav = page.getByRole('navigation', { name: 'Main' });
  await nav.getByRole('link', { name: 'Webhooks' }).click();
  await main
    .getByRole('button', { name: /^(Add|Create)/ })
    .first()
    .click();
  const hook = page.getByRole('dialog');
  await hook.getByLabel('URL').fill(`${upstream.url}/hook`);
  await hook.getByText('key.created', { exact: true }).first().click();
  await hook.getByRole('button', { name: /^(Add|Create)/ }).click();
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await nav.getByRole('link', { name: 'Keys' }).click();
  await main.getByRole('button', { name: 'Create a key' }).first().click();
  await form.getByLabel('Name', { exact: true }).fill('second');
  await form.getByRole('button', { name: 'Create the key' }).click();
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await nav.getByRole('link', { name: 'Webhooks' }).click();
  await main.getByRole('link', { name: /\/hook/ }).click();
  await main
    .getByRole('table')
    .getByRole('link', { name: /key\.created/ })
    .first()
    .click();
  await expect(main.getByRole('heading', { level: 1 })).toContainText('Retrying');
  broken = false;
  await page.getByRole('button', { name: 'Retry now' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toContainText('Delivered');
  await page.getByRole('button', { name: 'Redeliver' }).click();
  await expect(page.getByText('A new delivery of this event has begun')).toBeVisible();
  await expect.poll(() => upstream.requests.filter((r) => r.path === '/hook').length).toBe(3);
  expect(missing).toEqual([]);
});

// Guarantee: the list and the page of an endpoint whose circuit breaker has opened say until when it is paused, and a
// delivery that waits for its next attempt is delivered at once by Retry now.
test('a paused endpoint says until when, and a delivery is retried now', async ({ page, keygate, upstream }) => {
  let broken = true;
  upstream.handler = (_request, _body, response) => {
    response.statusCode = broken ? 503 : 200;
    response.end();
  };
  const { webhook_id } = await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/hook`, events: ['key.created'] });
  for (let i = 0; i < 12; i++) await keygate.call('POST', '/v1/keys', { name: `k${i}`, scope: 'read' });
  await expect.poll(async () => (await keygate.call('GET', `/v1/webhooks/${webhook_id}`)).paused_until).not.toBeNull();
  await signIn(page, keygate, 'webhooks');
  await expect(page.getByRole('row').filter({ hasText: '/hook' })).toContainText(/Paused until \d\d:\d\d:\d\d/);
  await page
    .getByRole('main')
    .getByRole('link', { name: /\/hook/ })
    .click();
  await expect(page.getByText('so this endpoint is paused: new deliveries begin again at')).toBeVisible();
  const waiting = (await keygate.call('GET', '/v1/webhook-deliveries?state=retry_scheduled')).data as {
    delivery_id: string;
    attempts: unknown;
  }[];
  broken = false;
  await page.goto(`${keygate.url}deliveries/${waiting.at(-1)!.delivery_id}`);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toContainText('Delivered');
});

// Guarantee: a 404 of a gateway is in the list of refused requests, and its page names the nearest routes and why they
// do not match.
test('a 404 is listed, with the nearest routes', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /orders, methods: [GET]}, {path: "/orders/{id}", methods: [GET]}]',
  });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  expect(await keygate.request('/Orders', key)).toBe(404);
  await signIn(page, keygate, 'requests');
  const row = page.getByRole('row').filter({ hasText: '/Orders' });
  await expect(row).toContainText('404');
  await expect(page.getByText('Nothing was refused')).toHaveCount(0);
  await row.getByRole('link').first().click();
  await expect(page.getByText('Near route').first()).toBeVisible();
  await expect(page.getByRole('main')).toContainText(/GET \/orders does not match: .*case/);
});

// Guarantee: a gateway without a limit has none for whoever looks at it; a 429 by the server's limit for such gateways
// says which limit that is.
test('the limit of the server for gateways without one is explained', async ({ page, upstream, watch }) => {
  void watch;
  const keygate = await Keygate.start(['--default-global-limit', '2/h']);
  try {
    const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
      name: 'orders',
      upstream_url: upstream.url,
      config: 'routes: [{path: /*, methods: [GET]}]',
    });
    const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
    for (const want of [200, 200, 429]) expect(await keygate.request('/', key)).toBe(want);
    await signIn(page, keygate, `gateways/${gateway_id}`);
    await expect(page.getByText('No limit for all requests')).toBeVisible();
    await page.goto(`${keygate.url}requests`);
    await page.getByRole('row').filter({ hasText: '429' }).getByRole('link').first().click();
    await expect(page.locator('[data-explanation]')).toContainText(
      'the server’s limit of 2 requests for a gateway that sets none was used up',
    );
    await expect(page.getByText(/the gateway sets no limit, .*\(--default-global-limit\) of 2 was used up/)).toBeVisible();
  } finally {
    await keygate.stop();
  }
});

// Guarantee: whoever creates a gateway whose upstream cannot be reached, or gives it such an upstream, is told so on its
// page, until a change finds the upstream.
test('an upstream that cannot be reached is said on the page of the gateway', async ({ page, keygate, upstream }) => {
  await signIn(page, keygate, 'gateways/new');
  await page.getByLabel('Name').fill('shop');
  await page.getByLabel('Upstream').fill('http://127.0.0.1:1');
  await page.getByRole('button', { name: 'Create the gateway' }).click();
  const said = page.getByText('upstream_url cannot be reached now');
  await expect(said).toBeVisible();
  await page.getByRole('navigation', { name: 'Pages of the gateway' }).getByRole('link', { name: 'Settings' }).click();
  await page.getByLabel('Address', { exact: true }).fill(upstream.url);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(said).toHaveCount(0);
});
