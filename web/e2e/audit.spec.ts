import { expect, signIn, test } from './keygate';

const hostile = ['<img src=x onerror=alert(1)>', '"><script>alert(1)</script>', 'gnp.exe שלום', '🎉'.repeat(20), `long-${'x'.repeat(240)}`];

// Guarantee: nothing that a caller or a tenant controls is more than text in the audit log, and none of it widens the page.
test('the audit log shows hostile names, paths and values as text', async ({ page, keygate, upstream, watch }) => {
  await keygate.call('POST', '/v1/gateways', { name: hostile[0], upstream_url: `${upstream.url}/%3Cscript%3E` });
  const key = await keygate.call('POST', '/v1/keys', { name: 'plain', scope: 'read', owner: hostile[1] });
  for (const name of hostile) await keygate.call('PATCH', `/v1/keys/${key.key_id}`, { name });
  for (const path of ['/<img src=x onerror=alert(1)>', '/%3Cscript%3Ealert(1)%3C/script%3E', '/%E2%80%AEgnp', `/${'y'.repeat(2000)}`]) {
    await keygate.request(path, undefined, { 'User-Agent': '<script>alert(1)</script>', Referer: 'javascript:alert(1)' });
  }
  let dialogs = 0;
  page.on('dialog', (d) => {
    dialogs++;
    void d.dismiss();
  });
  await signIn(page, keygate, 'audit');
  await page.setViewportSize({ width: 390, height: 800 });
  const table = page.getByRole('table', { name: 'Audit log' });
  await expect(table.getByRole('row').filter({ hasText: 'script' }).first()).toBeVisible();
  const width = () => page.evaluate(() => document.documentElement.scrollWidth);
  expect(await width()).toBeLessThanOrEqual(390);
  for (const text of ['script', 'yyyy']) {
    await table.getByRole('row').filter({ hasText: text }).first().getByRole('button').click();
    await expect(page.getByRole('dialog')).toContainText(text);
    expect(await page.getByRole('dialog').evaluate((d) => d.scrollWidth <= d.clientWidth)).toBe(true);
    await page.keyboard.press('Escape');
  }
  await page.goto(`${keygate.url}audit?kind=management`);
  const updates = page.getByRole('button', { name: 'key.update' });
  await expect(updates).toHaveCount(hostile.length);
  for (let i = 0; i < hostile.length; i++) {
    // newest first
    await updates.nth(i).click();
    const changes = page.getByRole('table', { name: 'Changes' });
    await expect(changes.getByRole('row').filter({ hasText: 'name' })).toContainText(hostile[hostile.length - 1 - i]!);
    expect(await page.getByRole('dialog').evaluate((d) => d.scrollWidth <= d.clientWidth)).toBe(true);
    await page.keyboard.press('Escape');
  }
  expect(await page.locator('main img, main script, dialog img, dialog script').count()).toBe(0);
  expect(dialogs).toBe(0);
  watch.check();
});

// Guarantee: each filter of the contract (section 7) can be typed, is in the request and in the link, and a time may be
// given as how long ago it was.
test('every filter of the audit log changes the request and stays in the link', async ({ page, keygate }) => {
  const gateway = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  const key = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  const box = page.getByLabel('Filter the audit log');
  await signIn(page, keygate, 'audit');
  const own = (await keygate.call('GET', '/v1/account')).key.key_id as string;
  for (const [typed, name, value] of [
    ['kind:management', 'kind', 'management'],
    ['outcome:success', 'outcome', 'success'],
    [`gateway_id:${gateway.gateway_id}`, 'gateway_id', gateway.gateway_id],
    [`key_prefix:${keygate.key.slice(0, 10)}`, 'key_prefix', keygate.key.slice(0, 10)],
    [`key_id:${own}`, 'key_id', own],
    [`actor:${own}`, 'actor', own],
    ['since:2h', 'since', /^\d{4}-\d\d-\d\dT[\d:]+Z$/],
    ['until:2099-01-01T00:00:00Z', 'until', '2099-01-01T00:00:00Z'],
  ] as [string, string, string | RegExp][]) {
    const asked = page.waitForRequest((r) => r.url().includes('/v1/audit-log?') && new URL(r.url()).searchParams.has(name));
    await box.fill(typed);
    await box.press('Enter');
    const sent = new URL((await asked).url()).searchParams.get(name)!;
    if (typeof value === 'string') expect(sent).toBe(value);
    else expect(sent).toMatch(value);
    await expect.poll(() => new URL(page.url()).searchParams.get(name)).toBe(sent);
  }
  await expect(page.getByRole('button', { name: 'gateway.create' })).toBeVisible();
  await expect(page.getByText('key.create')).toHaveCount(0); // of no gateway
  const link = await page.getByRole('link', { name: 'Export CSV' }).getAttribute('href');
  for (const name of ['kind', 'outcome', 'gateway_id', 'key_prefix', 'key_id', 'actor', 'since', 'until'])
    expect(link).toContain(`${name}=`);
  // A whole key that is pasted becomes its prefix, and is in no address.
  await page.goto(`${keygate.url}audit`);
  const urls: string[] = [];
  page.on('request', (r) => urls.push(r.url()));
  await box.fill(`key_prefix:${key.key} `);
  await expect.poll(() => new URL(page.url()).searchParams.get('key_prefix')).toBe(key.key.slice(0, 9));
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill(key.key);
  await expect(page.getByRole('option', { name: 'app' })).toBeVisible();
  expect([...urls, page.url()].filter((u) => u.includes(key.key))).toEqual([]);
});

// Guarantee: the audit log begins with changes and refusals, and shows all by a switch that is in the link. It says how
// many records are not sealed yet and by when they are, and has no tick while no block is sealed.
test('the audit log shows changes and refusals first, and what is not sealed', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  expect(await keygate.request('/passes', key)).toBe(200);
  expect(await keygate.request('/refused')).toBe(401);
  await signIn(page, keygate, 'audit');
  const table = page.getByRole('table', { name: 'Audit log' });
  await expect(table.getByRole('button', { name: 'gateway.create' })).toBeVisible();
  await expect(table).toContainText('GET /refused');
  await expect(table).not.toContainText('GET /passes');
  await expect(page.getByText('no block is sealed yet')).toBeVisible();
  await expect(page.getByText(/^\d+ records are not sealed yet, and will be by \d\d:\d\d:\d\d\.$/)).toBeVisible();
  await expect(page.getByRole('main').locator('svg.text-ok')).toHaveCount(0);
  expect(await page.getByRole('link', { name: 'Export CSV' }).getAttribute('href')).toContain('notable=true');
  await page.getByRole('button', { name: 'All records' }).click();
  await expect(table).toContainText('GET /passes');
  await expect(page).toHaveURL(/audit\?all=1$/);
  expect(await page.getByRole('link', { name: 'Export CSV' }).getAttribute('href')).not.toContain('notable');
  await page.reload();
  await expect(table).toContainText('GET /passes');
  await page.goBack();
  await expect(table).not.toContainText('GET /passes');
  await page.getByLabel('Filter the audit log').fill('key_prefix:kg_aaaaaa ');
  await page.getByRole('button', { name: 'Show all records' }).click();
  await expect(page.getByText('No records match')).toBeVisible();
});

// Guarantee: one request that changes many records shows each of them, once.
test('the changes of one request are all followed', async ({ page, keygate, watch }) => {
  const gateway = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  for (let i = 0; i < 3; i++) await keygate.call('POST', '/v1/keys', { name: `k${i}`, scope: 'read', gateway_id: gateway.gateway_id });
  await signIn(page, keygate, 'audit?kind=management&follow=1');
  await expect(page.getByRole('button', { name: 'gateway.create' })).toBeVisible();
  const created = page.getByRole('row').filter({ has: page.getByRole('button', { name: 'gateway.create' }) });
  await expect(created).toContainText('orders'); // the page has read the gateway, which is a 404 from now on
  await keygate.call('DELETE', `/v1/gateways/${gateway.gateway_id}`);
  await expect(page.getByRole('button', { name: 'key.revoke' })).toHaveCount(3);
  await page.getByRole('button', { name: 'Stop following' }).click();
  await expect(page.getByRole('button', { name: 'key.revoke' })).toHaveCount(3);
  watch.check();
});

// Guarantee: a list that lacks the newest records, because the store did not take them, says so and why.
test('a list that lacks the newest records says so', async ({ page, keygate }) => {
  const reason = 'the newest records are missing, and are added as soon as the store takes them: the disk is full';
  await page.route('**/v1/audit-log?*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...((await response.json()) as object), incomplete: true, incomplete_reason: reason } });
  });
  await signIn(page, keygate, 'audit');
  await expect(page.getByRole('status').filter({ hasText: `Incomplete: ${reason}.` })).toBeVisible();
  await page.unroute('**/v1/audit-log?*');
  await page.reload();
  await expect(page.getByRole('table', { name: 'Audit log' })).toBeVisible();
  await expect(page.getByText('Incomplete:')).toHaveCount(0);
});
