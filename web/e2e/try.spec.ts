import { accessible, expect, signIn, test } from './keygate';

const spec = JSON.stringify({
  openapi: '3.1.0',
  info: { title: 'Orders', version: '1' },
  paths: { '/orders': { get: {}, post: {} }, '/orders/{id}': { get: { 'x-keygate-rate-limit': { sustained: '1/h' } } } },
});

// Guarantee: a request is sent from the page of a gateway, and its response, or the reason of a refusal, is shown in
// words. The key is in its input alone: no attribute, no address and no storage of the browser has it.
test('a request is tried from the page of a gateway', async ({ page, keygate, upstream }) => {
  upstream.handler = (_request, _body, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.end('{"orders":[{"id":7}]}');
  };
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'write' });
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await expect(page.getByLabel('Path')).toHaveValue('/orders');
  const send = page.getByRole('button', { name: 'Send' });
  const response = page.getByRole('region', { name: 'Response' });

  await send.click();
  await expect(response).toContainText('401');
  await expect(response).toContainText('because no key was sent');
  await expect(response.getByRole('link', { name: 'Why, in full' })).toBeVisible();

  await page.getByLabel('Key of the caller').fill(key);
  await page.getByLabel('Method').selectOption('POST');
  await page.getByText('Headers and body').click();
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByLabel('Headers 1: name').fill('X-Color');
  await page.getByLabel('Headers 1: value').fill('blue');
  await page.getByRole('textbox', { name: 'Body optional' }).fill('{"id": 7}');
  await send.click();
  await expect(response).toContainText('200');
  await expect(response).toContainText('The request passed');
  await expect(response.getByLabel('Body of the response', { exact: true })).toHaveText(JSON.stringify({ orders: [{ id: 7 }] }, null, 2));
  await expect(response.getByRole('link')).toHaveCount(0); // the log of refused requests does not have it
  expect(upstream.requests[0]).toMatchObject({ method: 'POST', path: '/orders', body: '{"id": 7}' });
  expect(upstream.requests[0]!.headers).toMatchObject({ 'x-color': 'blue' });
  await accessible(page);
  expect(await page.content()).not.toContain(key);
  expect(await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, location.href]))).not.toContain(key);
  await page.reload();
  await expect(page.getByLabel('Key of the caller')).toHaveValue('');
});

// Guarantee: what is wrong with a request that is tried is said at its field.
test('mistakes in a request that is tried are at their fields', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await page.getByLabel('Path').fill('orders');
  await page.getByLabel('Key of the caller').fill('a b');
  await page.getByText('Headers and body').click();
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByLabel('Headers 1: name').fill('Host');
  await page.getByLabel('Headers 1: value').fill('x');
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(page.getByLabel('Path')).toHaveAccessibleDescription(/must begin with a slash/);
  await expect(page.getByLabel('Key of the caller')).toHaveAccessibleDescription(/give only the key/);
  await expect(page.getByRole('alert').filter({ hasText: /^Host / })).toBeVisible();
  await expect(page.getByRole('alert')).toHaveCount(3); // each once
  expect(upstream.requests).toEqual([]);
});

// Guarantee: what is typed, and the response, stay while the page reads the reports of the next minutes.
test('a response stays while the page is read again', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const minutes = new Set<string>(); // whose reports were read
  page.on('request', (r) => {
    const since = new URL(r.url()).searchParams.get('since');
    if (r.url().includes('/v1/reports/traffic') && since) minutes.add(since);
  });
  let ahead = 0; // of the server's clock, in milliseconds
  await page.route('**/v1/**', async (route) => {
    const fetched = await route.fetch();
    await route.fulfill({ response: fetched, headers: { ...fetched.headers(), date: new Date(Date.now() + ahead).toUTCString() } });
  });
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await page.getByLabel('Path').fill('/orders?page=2');
  await page.getByLabel('Key of the caller').fill('kg_typed');
  await page.getByRole('button', { name: 'Send' }).click();
  const response = page.getByRole('region', { name: 'Response' });
  await expect(response).toContainText('401');
  const before = minutes.size;
  ahead = 60_000;
  await expect.poll(() => minutes.size).toBeGreaterThan(before);
  await expect(page.locator('main .skeleton')).toHaveCount(0);
  await expect(response).toContainText('401');
  await expect(page.getByLabel('Path')).toHaveValue('/orders?page=2');
  await expect(page.getByLabel('Key of the caller')).toHaveValue('kg_typed');
});

// Guarantee: the page of a route tries that route, and explains a refusal by its limit. A key that may not try is told
// why.
test('a route is tried from its page', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  const routes = (await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`)).data as { route_id: string; path: string }[];
  const path = `gateways/${gateway_id}/routes/${routes.find((r) => r.path === '/orders/{id}')!.route_id}`;
  await signIn(page, keygate, path);
  await expect(page.getByLabel('Path')).toHaveValue('/orders/1');
  await page.getByLabel('Key of the caller').fill(key);
  const response = page.getByRole('region', { name: 'Response' });
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(response).toContainText('200');
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(response).toContainText('429');
  await expect(response).toContainText('the limit of 1 request for the route /orders/{id} was used up');
  await page.getByLabel('Path').fill('/orders/1/');
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(response).toContainText('404');
  await expect(response).toContainText('ends with a slash');
  await response.getByRole('link', { name: 'Why, in full' }).click();
  await expect(page.locator('[data-explanation]')).toContainText('/orders/1/');
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, path, reader.key);
  await expect(page.getByRole('button', { name: 'Send' })).toHaveAttribute('aria-disabled', 'true');
  await expect(page.getByText(/^Your key has the scope “read”\. This needs “write”/).first()).toBeVisible();
});
