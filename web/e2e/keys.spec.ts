import { createHash } from 'node:crypto';
import type { Page } from '@playwright/test';
import { accessible, expect, signIn, test } from './keygate';

// writes counts the calls of a page that change something.
function writes(page: Page): string[] {
  const seen: string[] = [];
  page.on('request', (r) => {
    if (r.method() !== 'GET' && !r.url().endsWith('/v1/session'))
      seen.push(`${r.method()} ${new URL(r.url()).pathname} ${r.postData() ?? ''}`);
  });
  return seen;
}

test('a key is created, used, rotated and revoked', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: JSON.stringify({ openapi: '3.1.0', info: { title: 'x', version: '1' }, paths: { '/orders': { get: {} } } }),
  });
  await signIn(page, keygate, 'keys');
  await page.getByRole('button', { name: 'Create a key' }).first().click();
  await page.getByLabel('Name', { exact: true }).fill('Mobile app');
  await page.getByLabel('Owner').fill('acme');
  await page.getByLabel('Scope 1: resource').fill('orders');
  await page.getByLabel('Sustained').fill('lots');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByRole('dialog').getByRole('alert').first()).toBeVisible(); // the server names the field
  await page.getByLabel('Sustained').fill('100/min');
  await page.getByLabel('Requests in flight').fill('0');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByLabel('Requests in flight')).toHaveAccessibleDescription(/Requests in flight must be .*1.*1,?000,?000/);
  await page.getByLabel('Requests in flight').fill('5');
  await page.getByRole('button', { name: 'Create the key' }).click();

  const shown = page.locator('[data-secret]');
  const secret = (await shown.textContent()) ?? '';
  expect(secret).toMatch(/^kg_[0-9A-Za-z]{36}$/);
  expect(await keygate.request('/orders', secret)).toBe(200);
  // Closing asks until the key was copied.
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('alert')).toContainText('not copied');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(secret);
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await page.evaluate(() => document.documentElement.outerHTML + JSON.stringify(history.state) + location.href)).not.toContain(
    secret,
  );

  await page.getByRole('link', { name: 'Mobile app' }).click();
  await expect(page.getByRole('heading', { name: /Mobile app/ })).toBeVisible();
  await expect(page.getByText('at most 5', { exact: true })).toBeVisible();
  await page.getByRole('button', { name: 'Rotate' }).click();
  await page.getByLabel('Overlap in days').fill('400');
  await expect(page.getByText('Enter a whole number from 0 to 365.')).toBeVisible();
  await page.getByLabel('Overlap in days').fill('7');
  await page.getByRole('button', { name: 'Rotate the key' }).click();
  const second = (await shown.textContent()) ?? '';
  expect(second).not.toBe(secret);
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('heading', { name: /the old key ends in/ })).toBeVisible();
  expect([await keygate.request('/orders', secret), await keygate.request('/orders', second)]).toEqual([200, 200]);

  await page.getByRole('button', { name: 'Revoke' }).click();
  const dialog = page.getByRole('dialog', { name: 'Revoke the key' });
  await expect(dialog).toContainText('Mobile app');
  await expect(dialog).toContainText(/requests? to.*\/orders.*of orders/);
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toContainText('keygate keys revoke key_');
  await page.keyboard.press('Escape');
  await dialog.getByRole('button', { name: 'Revoke the key' }).click();
  await expect(page.getByText('Revoked', { exact: true }).first()).toBeVisible();
  expect([await keygate.request('/orders', secret), await keygate.request('/orders', second)]).toEqual([401, 200]);
});

test('a form that is saved unchanged sends nothing, and one that was touched sends only that', async ({ page, keygate }) => {
  const key = await keygate.call('POST', '/v1/keys', {
    name: 'first',
    scope: 'read',
    owner: 'acme',
    rate_limit: { sustained: '10/s', daily: '100/day' },
    metadata: { team: 'a' },
  });
  const gateway = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: 'http://127.0.0.1:1',
    global_rate_limit: { sustained: '10/s' },
  });
  await signIn(page, keygate, `keys/${key.key_id}`);
  const sent = writes(page);
  // Save cannot be used while nothing is changed, neither by a click nor by Enter in a field.
  const save = page.getByRole('button', { name: 'Save' });
  await page.getByRole('button', { name: 'Edit' }).click();
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await save.click({ force: true });
  await page.getByLabel('Owner').press('Enter');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await page.goto(`${keygate.url}gateways/${gateway.gateway_id}/settings`);
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await save.click({ force: true });
  await page.getByLabel('Timeout', { exact: true }).press('Enter');
  await page.getByLabel('Timeout', { exact: true }).fill('5s');
  await expect(save).not.toHaveAttribute('aria-disabled');
  expect(sent).toEqual([]);
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('was saved')).toBeVisible();
  expect(sent).toEqual([`PATCH /v1/gateways/${gateway.gateway_id} {"timeout":"5s"}`]);

  sent.length = 0;
  await page.goto(`${keygate.url}keys/${key.key_id}`);
  const edit = page.getByRole('dialog');
  for (const [typed, shown] of [
    ['1,000', 'at most 1,000'],
    ['', 'Requests in flight–'],
  ] as const) {
    await page.getByRole('button', { name: 'Edit' }).click();
    await edit.getByLabel('Requests in flight').fill(typed);
    await edit.getByRole('button', { name: 'Save' }).click();
    await expect(edit).toHaveCount(0);
    await expect(page.getByText('at most 1,000')).toHaveCount(typed ? 1 : 0);
    await expect(page.getByRole('main')).toContainText(shown);
  }
  expect(sent).toEqual([`PATCH /v1/keys/${key.key_id} {"concurrency":1000}`, `PATCH /v1/keys/${key.key_id} {"concurrency":null}`]);
});

test('two people edit one key: the second sees what the first has changed, and nothing is lost', async ({ page, keygate, watch }) => {
  watch.allowed.add(412);
  const key = await keygate.call('POST', '/v1/keys', { name: 'shared', scope: 'read' });
  await signIn(page, keygate, `keys/${key.key_id}`);
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Owner').fill('mine');
  await keygate.call('PATCH', `/v1/keys/${key.key_id}`, { name: 'renamed by another' });
  await page.getByRole('button', { name: 'Save' }).click();
  const conflict = page.getByRole('alert');
  await expect(conflict).toContainText('Somebody else has changed this');
  await expect(conflict).toContainText('Name is now renamed by another');
  expect((await keygate.call('GET', `/v1/keys/${key.key_id}`)).owner).toBeNull();
  await conflict.getByRole('button', { name: 'Keep my changes' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await keygate.call('GET', `/v1/keys/${key.key_id}`)).toMatchObject({ name: 'renamed by another', owner: 'mine' });
});

test('a failure is never shown as a success', async ({ page, keygate, watch }) => {
  watch.allowed.add(500);
  const key = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, `keys/${key.key_id}`);
  await page.route('**/v1/keys/key_*', (route) =>
    route.request().method() === 'DELETE'
      ? route.fulfill({
          status: 500,
          contentType: 'application/json',
          body: '{"error":"internal","message":"it broke","request_id":"req_1"}',
        })
      : route.continue(),
  );
  await page.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('button', { name: 'Revoke the key' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).toContainText('it broke');
  await expect(page.getByText('is revoked')).toHaveCount(0);
  await expect(page.getByText('Active', { exact: true })).toBeVisible();
});

test('every control of the list changes the request, and a link shows the same', async ({ page, keygate }) => {
  for (let i = 0; i < 60; i++) await keygate.call('POST', '/v1/keys', { name: `key ${i}`, scope: 'read', owner: i % 2 ? 'odd' : 'even' });
  const revoked = await keygate.call('POST', '/v1/keys', { name: 'gone', scope: 'read' });
  await keygate.call('DELETE', `/v1/keys/${revoked.key_id}`);
  await signIn(page, keygate, 'keys');
  const table = page.getByRole('table', { name: 'Keys' });
  await expect(table.getByRole('row')).toHaveCount(51);
  await page.getByRole('button', { name: 'Next page' }).click();
  await expect(table.getByRole('link', { name: 'key 0', exact: true })).toBeVisible();
  await page.goBack();
  await expect(table.getByRole('link', { name: 'key 59', exact: true })).toBeVisible();
  const search = page.getByLabel('Search keys by name or prefix');
  await search.fill('owner:odd ');
  await expect(page).toHaveURL(/owner=odd/);
  await expect(table.getByRole('row')).toHaveCount(31);
  await search.fill('key 5');
  await expect(page).toHaveURL(/q=key\+5/);
  await expect(table.getByRole('row')).toHaveCount(7); // 5, 51, 53, 55, 57, 59, and the head
  await page.reload();
  await expect(table.getByRole('row')).toHaveCount(7);
  await page.getByRole('button', { name: 'Remove the filter Owner' }).click();
  await expect(table.getByRole('row')).toHaveCount(12);
  await search.fill('state:revoked '); // takes the place of the text
  await expect(table.getByRole('row')).toHaveCount(2);
  await search.fill('key');
  await expect(page.getByText('No key matches')).toBeVisible();
});

test('names with markup, right-to-left text, emoji and 255 characters are shown as text', async ({ page, keygate, watch }) => {
  const names = [
    '<img src=x onerror="document.title=1">',
    '"><script>alert(1)</script>',
    'مفتاح الوصول',
    '🔑'.repeat(60),
    'n'.repeat(255),
    '{{7*7}}${7*7}',
    'javascript:alert(1)',
  ];
  for (const name of names) await keygate.call('POST', '/v1/keys', { name, scope: 'read', metadata: { '<b>m</b>': name.slice(0, 200) } });
  const key = (await keygate.call('GET', '/v1/keys?limit=100')).data.find((k: { name: string }) => k.name === names[0]);
  await signIn(page, keygate, 'keys');
  for (const name of names) await expect(page.getByRole('table').getByText(name, { exact: true })).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth)).toBe(true);
  await page.goto(`${keygate.url}keys/${key.key_id}`);
  await expect(page.getByRole('heading', { level: 1 })).toContainText(names[0]!);
  expect(await page.locator('main img, main script').count()).toBe(0);
  await expect(page).toHaveTitle(/onerror/);
  watch.check();
});

test('a key can be checked, and is not kept', async ({ page, keygate }) => {
  const key = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read:orders' });
  await signIn(page, keygate, 'keys');
  await page.getByRole('button', { name: 'Check a key' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Key').fill(key.key);
  await dialog.getByLabel('Path').fill('/customers');
  await dialog.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(dialog.getByRole('status')).toContainText('Would be refused');
  await expect(dialog.getByRole('status')).toContainText('scope does not allow');
  await dialog.getByLabel('Path').fill('/orders/1');
  await dialog.getByRole('button', { name: 'Check', exact: true }).click();
  await expect(dialog.getByRole('status')).toContainText('Would be let in');
  await dialog.getByRole('button', { name: 'Close' }).click();
  expect(await page.evaluate(() => document.documentElement.outerHTML)).not.toContain(key.key);
});

test('an expiry by day is shown as the last day on which the key is valid', async ({ page, keygate }) => {
  const key = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', expires_at: '2999-01-31' });
  await signIn(page, keygate, `keys/${key.key_id}`);
  await page.getByRole('button', { name: 'Edit' }).click();
  const expires = page.getByRole('dialog').getByLabel('Expires');
  await expect(expires).toHaveValue('2999-01-31');
  await expires.fill('2999-02-01');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect((await keygate.call('GET', `/v1/keys/${key.key_id}`)).expires_at).toBe('2999-02-02T00:00:00Z');
  // The new key of a rotation inherits the expiry, and the form says so.
  await page.getByRole('button', { name: 'Rotate' }).click();
  await expect(page.getByRole('dialog')).toContainText('Without a date it expires when the old key would have');
});

test('a copy that the browser refused does not count, and copying by hand does', async ({ page, keygate }) => {
  await page.addInitScript(() => {
    Object.defineProperty(navigator, 'clipboard', { value: undefined });
    document.execCommand = () => false;
  });
  await signIn(page, keygate, 'keys?create=1');
  await page.getByLabel('Name', { exact: true }).fill('app');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Copy', exact: true }).click();
  await expect(dialog.getByText('Copying failed')).toBeAttached();
  await dialog.getByRole('button', { name: 'Done' }).click();
  await expect(dialog.getByRole('alert')).toContainText('not copied');
  await page.locator('[data-secret]').click({ clickCount: 3 });
  await page.keyboard.press('Control+C');
  await dialog.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
});

test('the line of curl for a new key reaches the gateway', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: JSON.stringify({ openapi: '3.1.0', info: { title: 'x', version: '1' }, paths: { '/orders': { get: {} } } }),
  });
  await signIn(page, keygate, 'keys?create=1');
  await page.getByLabel('Name', { exact: true }).fill('app');
  await page.getByLabel('Scope 1: resource').fill('orders');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const secret = (await page.locator('[data-secret]').textContent()) ?? '';
  await page.getByText('Curl', { exact: true }).click();
  const line = (await page.getByLabel('Curl', { exact: true }).textContent()) ?? '';
  const address = new URL(/^curl (\S+)/.exec(line)?.[1] ?? '');
  expect(line).toContain(`Authorization: Bearer ${secret}`);
  expect(`127.0.0.1:${address.port}`).toBe(keygate.gateway);
  expect(await keygate.request(address.pathname, secret)).toBe(200);
});

test('a key that may not grant a scope cannot choose it or rotate a key that has it, and may revoke itself', async ({ page, keygate }) => {
  const strong = await keygate.call('POST', '/v1/keys', { name: 'strong', scope: 'admin' });
  const caller = await keygate.call('POST', '/v1/keys', { name: 'caller', scope: 'read write:keys', level: 'account' });
  await signIn(page, keygate, 'keys?create=1', caller.key);
  const word = page.getByLabel('Scope 1: what it allows');
  await expect(word.getByRole('option', { name: /^admin/ })).toBeDisabled();
  await expect(word.getByRole('option', { name: /^write/ })).toBeEnabled();
  await page.goto(`${keygate.url}keys/${strong.key_id}`);
  await expect(page.getByRole('button', { name: 'Rotate' })).toHaveAttribute('title', /needs “admin”/);
  await expect(page.getByRole('button', { name: 'Revoke' })).toHaveAttribute('title', /needs “admin”/);
  await page.goto(`${keygate.url}keys/${caller.key_id}`);
  await expect(page.getByRole('heading', { name: /caller/ })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Rotate' })).toHaveAttribute('aria-disabled', 'true');
  await expect(page.getByRole('button', { name: 'Revoke' })).not.toHaveAttribute('aria-disabled');
});

// Guarantee: keys of a file are imported by their hashes alone: no string of a key leaves the browser, whatever is wrong with the file.
// What is wrong stands at its line, and the end says what was imported. A key that may only read cannot import.
test('keys are imported, and only their hashes leave the browser', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422).add(409);
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /a, methods: [GET]}]',
  });
  const strings = ['one', 'two'].map((name) => `old_${name}_${'x1Y2'.repeat(7)}`);
  const [first, second] = strings as [string, string];
  const hash = (text: string) => createHash('sha256').update(text).digest('hex');
  const line = (fields: object) => JSON.stringify({ scope: 'read', ...fields });
  const file = (...lines: string[]) => `{"keys": [\n${lines.join(',\n')}\n]}`;
  const sent: string[] = [];
  page.on('request', (r) => sent.push(`${r.method()} ${r.url()} ${r.postData() ?? ''}`));
  const imports = () => sent.filter((s) => s.startsWith('POST') && s.includes('/v1/keys/import'));
  await signIn(page, keygate, 'keys');
  await page.getByRole('button', { name: 'Import keys' }).first().click();
  const dialog = page.getByRole('dialog');
  const text = dialog.getByLabel('Keys as JSON');
  const submit = dialog.getByRole('button', { name: 'Import the keys' });
  const refused = async (content: string, says: RegExp) => {
    await dialog
      .locator('input[type=file]')
      .setInputFiles({ name: 'keys.json', mimeType: 'application/json', buffer: Buffer.from(content) });
    await expect(text).toHaveValue(content);
    await submit.click();
    await expect(text).toHaveAccessibleDescription(says);
    await expect(text).toHaveAttribute('aria-invalid', 'true');
  };
  const good = line({ key: first, name: 'mobile', owner: 'customer-42' });
  await refused('nothing', /This is not JSON/);
  await refused('{"keys": []}', /must have the form/);
  await refused(file(good, line({ key: 'short', name: 'two' })), /^Line 3, key: must have 16 to 512 characters/);
  await refused(file(good, line({ secret: second, name: 'two' })), /^Line 3, secret: is not a field of a key/);
  expect(imports()).toEqual([]); // not even of the one that is right
  await refused(file(good, line({ key: second, name: '' })), /Line 3, name: must/);
  await accessible(page);
  expect(imports()).toHaveLength(1);
  expect(imports()[0]).toContain(hash(first));
  expect((await keygate.call('GET', '/v1/keys?name=mobile')).data).toEqual([]);

  await text.fill(file(good, line({ key: second, name: 'partner' }), line({ sha256: hash('another'), name: 'legacy' })));
  await submit.click();
  await expect(dialog.getByRole('status')).toContainText('3 keys imported');
  await expect(dialog).toContainText('Of 1 key only the hash is known');
  for (const s of strings) expect(await page.evaluate(() => document.documentElement.outerHTML)).not.toContain(s);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByRole('row').filter({ hasText: 'mobile' })).toContainText('imported');
  for (const s of strings) expect(await keygate.request('/a', s)).toBe(200);

  await page.getByRole('button', { name: 'Import keys' }).first().click();
  await refused(file(line({ key: second, name: 'again' })), /^Line 2, sha256: the account has this key/);
  for (const s of strings) expect(sent.filter((r) => r.includes(s))).toEqual([]);

  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, 'keys?import=1', reader.key);
  await expect(page.getByRole('button', { name: 'Import keys' })).toHaveAccessibleDescription(/needs “write”/);
  await expect(dialog).toHaveCount(0);
});
