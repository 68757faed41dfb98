import { accessible, expect, signIn, test } from './keygate';

const document = JSON.stringify({
  openapi: '3.1.0',
  info: { title: 'Orders', version: '1' },
  paths: {
    '/orders': { get: { parameters: [{ in: 'query', name: 'limit', schema: { type: 'integer', maximum: 100 } }] } },
    '/odd': { get: { parameters: [{ in: 'query', name: 'q', schema: { pattern: '(?=a)' } }] } },
  },
});

// Guarantee: the page of a gateway says what its requests do otherwise than the document, with the key and the place in the document, and
// what is unchecked; the mode of a route is set on its page, and requests are refused at once.
test('what requests do otherwise is seen, and refused on one route', async ({ page, keygate, upstream, watch }) => {
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    validate: 'report',
    spec: document,
  });
  const { key, key_id } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  for (const path of ['/orders?limit=10', '/orders?limit=many', '/orders?limit=101', '/odd']) {
    expect(await keygate.request(path, key)).toBe(200);
  }
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await page.getByRole('link', { name: 'Validation' }).click();
  await expect(page.getByText('2 of 4 requests of the last 24 hours, with 1 key, would be refused.')).toBeVisible();
  await expect(page.getByRole('table', { name: 'Unchecked operations' })).toContainText('GET /odd');
  const rows = page.getByRole('table', { name: 'What requests do otherwise' });
  await expect(rows).toContainText('query: limit must be ≤ 100');
  await accessible(page);
  await rows.getByRole('row').filter({ hasText: 'limit must be ≤ 100' }).getByRole('button', { name: 'GET /orders' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('/paths/~1orders/get/parameters/0/schema');
  await expect(dialog.getByRole('link', { name: key_id })).toBeVisible();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await page.setViewportSize({ width: 390, height: 800 });
  expect(await page.evaluate(() => window.document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await page.setViewportSize({ width: 1280, height: 800 });

  await page.getByRole('link', { name: 'Routes', exact: true }).first().click();
  await page.getByRole('link', { name: '/orders' }).click();
  const panel = page.locator('section').filter({ has: page.getByRole('heading', { name: 'OpenAPI document' }) });
  await expect(panel).toContainText('So says the gateway.');
  await panel.getByRole('button', { name: 'Change the mode' }).click();
  await dialog.getByLabel('Requests that do not meet it').selectOption('enforce');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(panel).toContainText('Requests that do not meet the document are refused.');
  expect(await keygate.request('/orders?limit=many', key)).toBe(400);
  expect(await keygate.request('/orders?limit=10', key)).toBe(200);
  watch.check();
});
