import { expect, signIn, test } from './keygate';

const spec = (paths: Record<string, unknown>) => JSON.stringify({ openapi: '3.1.0', info: { title: 'Orders', version: '1' }, paths });

test('from an empty installation to the first call, without reading anything else', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  await signIn(page, keygate);
  await expect(page.getByRole('heading', { name: 'Welcome to Keygate' })).toBeVisible();
  await page.getByRole('main').getByRole('link', { name: 'Create a gateway' }).click();
  await page.getByLabel('Name').fill('orders');
  await page.getByLabel('Upstream').fill('not a url');
  await page.getByLabel('OpenAPI document').check();
  await page.getByRole('textbox', { name: 'OpenAPI document' }).fill('{"openapi": "3.1.0", "paths": 5}');
  await page.getByRole('button', { name: 'Create the gateway' }).click();
  await expect(page.getByLabel('Upstream')).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Upstream').fill(upstream.url);
  await page.getByRole('textbox', { name: 'OpenAPI document' }).fill(spec({ '/orders': { get: {} } }));
  await page.getByRole('button', { name: 'Create the gateway' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'orders' })).toBeVisible();

  await page.getByRole('link', { name: 'Keygate: overview' }).click();
  const steps = page.getByRole('listitem').filter({ hasText: 'Create a key' });
  await steps.getByRole('link', { name: 'Create a key' }).click();
  await page.getByLabel('Name', { exact: true }).fill('first');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const key = (await page.locator('[data-secret]').textContent()) ?? '';
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByRole('link', { name: 'Keygate: overview' }).click();
  await expect(page.getByLabel('The first call', { exact: true })).toBeVisible();
  expect(await keygate.request('/orders', key)).toBe(200);
  // The steps turn themselves off, and the call is there.
  await expect(page.getByLabel('The first call', { exact: true })).toHaveCount(0);
  await expect(page.getByRole('table', { name: 'Top routes' })).toContainText('GET /orders');
  await expect(page.getByRole('table', { name: 'Top keys' })).toContainText('first');
});

test('a push is previewed with its difference and its effect, and a revision is restored', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const gateway = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec: spec({ '/orders': { get: {} }, '/customers': { get: {} } }) });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  for (let i = 0; i < 5; i++) expect(await keygate.request('/customers', key)).toBe(200);
  await signIn(page, keygate, `gateways/${gateway.gateway_id}/push`);
  const field = page.getByLabel('OpenAPI document or configuration file');
  await field.fill('openapi: 3.1.0\npaths: [');
  await page.getByRole('button', { name: 'Preview' }).click();
  await expect(page.getByRole('alert')).toContainText(/line/);
  await field.fill(spec({ '/orders': { get: {} }, '/reports': { get: {} } }));
  await page.getByRole('button', { name: 'Preview' }).click();
  await expect(page.getByText('1 added')).toBeVisible();
  await expect(page.getByText('1 removed')).toBeVisible();
  await expect(page.getByText(/of 5 requests on these routes would have been refused/)).toBeVisible();
  expect(await keygate.request('/customers', key)).toBe(200); // a preview changes nothing
  await page.getByRole('button', { name: 'Push', exact: true }).click();
  await expect(page).toHaveURL(/\/revisions/);
  await expect(page.getByRole('row').filter({ hasText: 'dashboard' })).toContainText('in force');
  expect(await keygate.request('/customers', key)).toBe(404);

  await page.getByRole('row').filter({ hasText: 'api' }).getByRole('button', { name: 'Roll back' }).click();
  const dialog = page.getByRole('dialog', { name: 'Roll back to revision 1' });
  await expect(dialog).toContainText('/customers');
  await dialog.getByRole('button', { name: 'Roll back' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'rollback' })).toContainText('in force');
  expect(await keygate.request('/customers', key)).toBe(200);
});

test('a limit is changed after its simulation', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec: spec({ '/orders': { get: {} } }) });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  for (let i = 0; i < 8; i++) expect(await keygate.request('/orders', key)).toBe(200);
  await signIn(page, keygate, 'routes');
  await page.getByRole('link', { name: '/orders' }).click();
  await page.getByLabel('Sustained').fill('lots');
  await expect(page.getByText(/Enter a limit such as/)).toBeVisible();
  await page.getByLabel('Sustained').fill('2/min');
  await expect(page.getByText(/Last 24 h: .* of 8 requests would have been refused, 1 key/)).toBeVisible();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('The limit was saved')).toBeVisible();
  const statuses: number[] = [];
  for (let i = 0; i < 4; i++) statuses.push(await keygate.request('/orders', key));
  expect(statuses).toContain(429);
  await expect(page.getByRole('table', { name: 'Limits in use' })).toContainText('of 2');
});

test('deleting a gateway asks for its name, and names what goes with it', async ({ page, keygate }) => {
  const gateway = await keygate.call('POST', '/v1/gateways', { name: 'doomed', upstream_url: 'http://127.0.0.1:1' });
  const key = await keygate.call('POST', '/v1/keys', { name: 'only here', scope: 'read', gateway_id: gateway.gateway_id });
  await signIn(page, keygate, `gateways/${gateway.gateway_id}`);
  await page.getByRole('button', { name: 'Delete the gateway' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('1 key for this gateway only is revoked');
  await expect(dialog.getByRole('button', { name: 'Delete the gateway' })).toHaveAttribute('aria-disabled', 'true');
  await dialog.getByRole('textbox').fill('doomed');
  await dialog.getByRole('button', { name: 'Delete the gateway' }).click();
  await expect(page).toHaveURL(/\/gateways$/);
  expect((await keygate.call('GET', `/v1/keys/${key.key_id}`)).state).toBe('revoked');
});

// The repository is at a port of this machine where nothing listens, so every sync fails.
const repository = { url: 'https://127.0.0.1:1/team/api.git', branch: 'main', path: 'openapi.yaml', kind: 'spec' };

// Guarantee: an edit of a repository does not undo what another session has saved since the form was opened,
// although the page reads the record again meanwhile.
test('two sessions edit a repository, and none overwrites the other', async ({ page, keygate, watch }) => {
  watch.allowed.add(412);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'followed', upstream_url: 'http://127.0.0.1:1' });
  const path = `/v1/gateways/${gateway_id}/repository`;
  await keygate.call('PUT', path, repository);
  await signIn(page, keygate, `gateways/${gateway_id}/repository`);
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Look every').fill('5m');
  await keygate.call('PUT', path, { ...repository, branch: 'release' });
  await expect(page.locator('dd, td').filter({ hasText: /^release$/ })).toHaveCount(1); // the page has read it again
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  const conflict = page.getByRole('alert').filter({ hasText: 'Branch is now release' });
  await expect(conflict).toBeVisible();
  await conflict.getByRole('button', { name: 'Keep my changes' }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await keygate.call('GET', path)).toMatchObject({ branch: 'release', interval: '5m' });
});

// Guarantee: a server that stops under the form of a repository costs no typed input.
test('a repository form keeps what was typed while the server is away', async ({ page, keygate, watch }) => {
  watch.offline = true;
  for (const status of [404, 500, 502, 503]) watch.allowed.add(status);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'followed', upstream_url: 'http://127.0.0.1:1' });
  await keygate.call('PUT', `/v1/gateways/${gateway_id}/repository`, repository);
  await signIn(page, keygate, `gateways/${gateway_id}/repository`);
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('File').fill('typed/openapi.yaml');
  await keygate.halt();
  await expect(page.locator('main').getByText('Keygate does not answer').first()).toBeAttached();
  await expect(page.getByLabel('File')).toHaveValue('typed/openapi.yaml');
  await keygate.boot();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await keygate.call('GET', `/v1/gateways/${gateway_id}/repository`)).toMatchObject({ path: 'typed/openapi.yaml' });
});

// Guarantee: what could not be read is never shown as nothing, least of all before a deletion.
test('a gateway whose keys and traffic cannot be read does not say that there are none', async ({ page, keygate, watch }) => {
  watch.allowed.add(503);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: `long ${'x'.repeat(200)}`, upstream_url: 'http://127.0.0.1:1' });
  await keygate.call('POST', '/v1/keys', { name: 'only here', scope: 'read', gateway_id });
  const down = (route: import('@playwright/test').Route) => route.fulfill({ status: 503, contentType: 'application/json', body: '{"error":"unavailable","message":"down"}' });
  for (const url of ['**/v1/reports/traffic**', '**/v1/keys?**']) await page.route(url, down);
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await expect(page.getByRole('list', { name: 'The way of a request' })).toContainText('Its keys are not known');
  await expect(page.getByText('Nothing refused in the last hour')).toHaveCount(0);
  await page.getByRole('button', { name: 'Delete the gateway' }).click();
  await expect(page.getByRole('dialog')).toContainText('how many there are is not known');
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
});
