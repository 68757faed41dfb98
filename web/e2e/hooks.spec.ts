import { expect, Keygate, signIn, test } from './keygate';

const spec = JSON.stringify({
  openapi: '3.1.0',
  info: { title: 'x', version: '1' },
  paths: { '/orders': { get: {} }, '/broken': { get: {} } },
});

test('a failed webhook is found, understood and delivered again', async ({ page, upstream, watch }) => {
  void watch;
  const keygate = await Keygate.start(['--webhook-backoff', '50ms,50ms,50ms,50ms']);
  try {
    let broken = true;
    upstream.handler = (_request, _body, response) => {
      response.statusCode = broken ? 500 : 200;
      response.end(broken ? '<script>document.title = "hacked"</script> cannot write' : 'thanks');
    };
    await signIn(page, keygate, 'webhooks?create=1');
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('URL').fill(`${upstream.url}/hook`);
    await dialog.getByText('key.created', { exact: true }).first().click();
    await dialog.getByRole('button', { name: /^(Add|Create)/ }).click();
    const secret = (await page.locator('[data-secret]').textContent()) ?? '';
    expect(secret).toMatch(/^whsec_/);
    await page.getByRole('button', { name: 'Copy', exact: true }).click();
    await page.getByRole('button', { name: 'Done' }).click();
    expect(await page.evaluate(() => document.documentElement.outerHTML)).not.toContain(secret);

    await keygate.call('POST', '/v1/keys', { name: 'first', scope: 'read' });
    await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=failed')).data.length).toBe(1);
    const [delivery] = (await keygate.call('GET', '/v1/webhook-deliveries?state=failed')).data;
    await page.goto(`${keygate.url}deliveries?state=failed`);
    await page
      .getByRole('table')
      .getByRole('link', { name: /key\.created/ })
      .first()
      .click();
    await expect(page).toHaveURL(new RegExp(delivery.delivery_id));
    await expect(page.getByText('cannot write').first()).toBeVisible();
    await expect(page.locator('main script')).toHaveCount(0);
    broken = false;
    await page
      .getByRole('button', { name: /^(Redeliver|Deliver again)/ })
      .first()
      .click();
    await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=delivered')).data.length).toBe(1);
    await expect(page.getByText(/Delivered/).first()).toBeVisible();
    const bodies = upstream.requests.map((r) => r.body);
    expect(new Set(bodies).size).toBe(1); // every attempt had the same bytes
  } finally {
    await keygate.stop();
  }
});

test('a refused request is explained in a sentence, and the live list shows it as it happens', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'Mobile app', scope: 'read', rate_limit: '1/h' });
  await signIn(page, keygate, 'requests?live=1');
  const table = page.getByRole('table');
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await keygate.request('/orders', key);
  expect(await keygate.request('/orders', key)).toBe(429);
  await expect(table.getByRole('row').filter({ hasText: '429' })).toHaveCount(1);
  upstream.handler = (_request, _body, response) => {
    response.statusCode = 503;
    response.end('<img src=x onerror=alert(1)>');
  };
  expect(await keygate.request('/orders?secret=1', undefined, { 'User-Agent': '<script>alert(1)</script>' })).toBe(401);
  await expect(table.getByRole('row').filter({ hasText: '401' })).toHaveCount(1);
  await table.getByRole('row').filter({ hasText: '429' }).getByRole('link').first().click();
  await expect(page.getByText(/limit/).first()).toBeVisible();
  await expect(page.getByRole('link', { name: 'Mobile app' })).toBeVisible();
  expect(await page.evaluate(() => document.body.innerText)).not.toContain('secret=1');
});

test('the audit log finds who changed what, with the values before and after', async ({ page, keygate }) => {
  const key = await keygate.call('POST', '/v1/keys', { name: 'before', scope: 'read' });
  await keygate.call('PATCH', `/v1/keys/${key.key_id}`, { name: '<b>after</b>' });
  await signIn(page, keygate, 'audit');
  await page.getByLabel('Filter the audit log').fill('kind:management ');
  await expect(page).toHaveURL(/kind=management/);
  await page.getByRole('button', { name: 'key.update' }).first().click();
  const changes = page.getByRole('table', { name: 'Changes' });
  await expect(changes.getByRole('row').filter({ hasText: 'name' })).toContainText('before');
  await expect(changes.getByRole('row').filter({ hasText: 'name' })).toContainText('<b>after</b>');
  await page.keyboard.press('Escape');
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Export CSV' }).click();
  expect((await download).suggestedFilename()).toBe('audit-log.csv');
  await page.getByRole('button', { name: 'Follow' }).click();
  await keygate.call('DELETE', `/v1/keys/${key.key_id}`);
  await expect(page.getByRole('button', { name: 'key.revoke' })).toBeVisible();
});
