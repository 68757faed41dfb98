import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, signIn, test } from './keygate';
import { overflowing } from './screens';

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

// Guarantee: a gateway that is created without a document forwards every path, also /, and the form says so before.
test('a gateway without a document forwards everything', async ({ page, keygate, upstream }) => {
  await signIn(page, keygate, 'gateways/new');
  const all = page.getByRole('radio', { name: 'Forward everything' });
  await expect(all).toBeChecked();
  await expect(all).toHaveAccessibleDescription(/One route, \/\*, for GET, POST, .*callers with a key/);
  await page.getByLabel('Name').fill('wiki');
  await page.getByLabel('Upstream').fill(upstream.url);
  await page.getByRole('button', { name: 'Create the gateway' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'wiki' })).toBeVisible();
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  for (const path of ['/', '/a/b?c=d']) {
    expect(await keygate.request(path)).toBe(401);
    expect(await keygate.request(path, key)).toBe(200);
  }
});

// Guarantee: a gateway without routes says so on its page, and a click gives it one. Who may not is told why.
test('a gateway without routes gets one by a click', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'bare', upstream_url: upstream.url });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  await signIn(page, keygate, `gateways/${gateway_id}`, reader.key);
  const banner = page.getByRole('region', { name: 'No routes' });
  const button = banner.getByRole('button', { name: 'Forward everything' });
  await expect(banner).toContainText('gets a 404');
  await expect(page.getByText('There is nothing to call')).toBeVisible();
  await expect(button).toHaveAttribute('aria-disabled', 'true');
  await expect(button).toHaveAccessibleDescription(/needs “write”/);
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, `gateways/${gateway_id}/routes`);
  await expect(page.getByRole('main').getByRole('button', { name: 'Forward everything' })).toBeVisible();
  await page.getByRole('link', { name: 'Overview', exact: true }).last().click();
  await button.click();
  await expect(banner).toHaveCount(0);
  await expect(page.getByLabel('A call of this gateway', { exact: true })).toContainText(/localhost:\d+\/'? /);
  for (const path of ['/', '/a/b']) expect(await keygate.request(path, key)).toBe(200);
});

// Guarantee: wherever a call is suggested, it is of the first route for GET without parameters, it chooses the gateway
// by its host, and it works as it is pasted.
test('suggested calls work as they are', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', { name: 'default', upstream_url: 'http://127.0.0.1:1' });
  const { gateway_id, hostname } = await keygate.call('POST', '/v1/gateways', {
    name: 'zoo',
    upstream_url: upstream.url,
    spec: spec({ '/animals': { post: {} }, '/animals/{id}': { get: {} }, '/cages': { get: {} } }),
  });
  await signIn(page, keygate, `keys?create=1&gateway_id=${gateway_id}`);
  await page.getByLabel('Name', { exact: true }).fill('keeper');
  await page.getByLabel('Gateway', { exact: true }).selectOption('zoo');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await page.getByText('Curl', { exact: true }).click();
  const shown = page.getByLabel('Curl', { exact: true });
  await expect(shown).toContainText(`${hostname}`);
  await expect(shown).toContainText('/cages');
  const call = (await shown.textContent()) ?? '';
  const key = (await page.locator('[data-secret]').textContent()) ?? '';
  expect((await promisify(execFile)('sh', ['-c', call])).stdout).toBe('ok');
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await page.goto(`${keygate.url}gateways/${gateway_id}`);
  await expect(page.getByLabel('A call of this gateway', { exact: true })).toHaveText(call.replace(key, 'kg_…'));
  expect(upstream.requests.map((r) => `${r.method} ${r.path}`)).toEqual(['GET /cages']);
});

test('a push is previewed with its difference and its effect, and a revision is restored', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const gateway = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: spec({ '/orders': { get: {} }, '/customers': { get: {} } }),
  });
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
  await expect(page.locator('main').getByText('Keygate does not respond').first()).toBeAttached();
  await expect(page.getByLabel('File')).toHaveValue('typed/openapi.yaml');
  await keygate.boot();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await keygate.call('GET', `/v1/gateways/${gateway_id}/repository`)).toMatchObject({ path: 'typed/openapi.yaml' });
});

// Guarantee: what could not be read is never shown as nothing, least of all before a deletion.
test('a gateway whose keys and traffic cannot be read does not say that there are none', async ({ page, keygate, watch }) => {
  watch.allowed.add(503);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: `long ${'x'.repeat(200)}`,
    upstream_url: 'http://127.0.0.1:1',
  });
  await keygate.call('POST', '/v1/keys', { name: 'only here', scope: 'read', gateway_id });
  const down = (route: import('@playwright/test').Route) =>
    route.fulfill({ status: 503, contentType: 'application/json', body: '{"error":"unavailable","message":"down"}' });
  for (const url of ['**/v1/reports/traffic**', '**/v1/keys?**']) await page.route(url, down);
  await signIn(page, keygate, `gateways/${gateway_id}`);
  await expect(page.getByRole('list', { name: 'The way of a request' })).toContainText('Its keys are not known');
  await expect(page.getByText('Nothing refused in the last hour')).toHaveCount(0);
  await page.getByRole('button', { name: 'Delete the gateway' }).click();
  await expect(page.getByRole('dialog')).toContainText('how many there are is not known');
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
});

// Guarantee: what was previewed for one gateway is never pushed to another.
test('a document that was previewed for one gateway is not there for the next', async ({ page, keygate }) => {
  const create = (name: string) =>
    keygate.call('POST', '/v1/gateways', { name, upstream_url: 'http://127.0.0.1:1', spec: spec({ '/a': { get: {} } }) });
  const [one, two] = [await create('one'), await create('two')];
  await signIn(page, keygate, `gateways/${two.gateway_id}/push`);
  await page.evaluate(() => {
    document.body.dataset.same = 'page';
  });
  await page.getByRole('link', { name: 'Gateways', exact: true }).first().click();
  await page.getByRole('link', { name: 'one' }).click();
  await page.getByRole('link', { name: 'Push', exact: true }).click();
  await page.getByLabel('OpenAPI document or configuration file').fill(spec({ '/b': { get: {} } }));
  await page.getByRole('button', { name: 'Preview' }).click();
  await expect(page.getByRole('heading', { name: 'What it changes in one' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Push', exact: true })).toBeVisible();
  await page.evaluate(
    ([from, to]) => {
      history.pushState(null, '', location.href.replace(from!, to!));
      dispatchEvent(new PopStateEvent('popstate'));
    },
    [one.gateway_id as string, two.gateway_id as string],
  );
  await expect(page.getByRole('heading', { level: 1, name: 'two' })).toBeVisible();
  expect(await page.evaluate(() => document.body.dataset.same)).toBe('page'); // the page was not loaded anew
  await expect(page.getByLabel('OpenAPI document or configuration file')).toHaveValue('');
  await expect(page.getByRole('button', { name: 'Push', exact: true })).toHaveCount(0);
});

// Guarantee: what a rollback was shown to change is what it changes.
test('revisions are compared while their numbers are typed, and a change under an open rollback is noticed', async ({
  page,
  keygate,
  watch,
}) => {
  watch.allowed.add(412);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: 'http://127.0.0.1:1',
    spec: spec({ '/r0': { get: {} } }),
  });
  const push = (n: number) => keygate.call('PUT', `/v1/gateways/${gateway_id}/spec`, JSON.parse(spec({ [`/r${n}`]: { get: {} } })));
  for (let n = 1; n < 30; n++) await push(n);
  await signIn(page, keygate, `gateways/${gateway_id}/revisions`);
  await page.getByRole('button', { name: 'Next page' }).click();
  const second = page.getByRole('row').filter({ has: page.getByText('2', { exact: true }) });
  await second.getByRole('button', { name: 'Compare' }).click();
  await expect(page.getByText('Added: 1 route')).toBeInViewport();
  await expect(second).toBeVisible(); // still the second page of the list
  const to = page.getByLabel('to', { exact: true });
  await to.fill('');
  await expect(to).toHaveAttribute('aria-invalid', 'true');
  await to.fill('30');
  await expect(page.getByText('GET /r29')).toBeVisible();
  await expect(page.getByText('GET /r0')).toBeVisible();
  await expect(page).toHaveURL(/from=1&.*to=30|to=30.*from=1/);

  await second.getByRole('button', { name: 'Roll back' }).click();
  const dialog = page.getByRole('dialog', { name: 'Roll back to revision 2' });
  await expect(dialog).toContainText('GET /r29');
  await push(99);
  await dialog.getByRole('button', { name: 'Roll back' }).click();
  await expect(dialog.getByRole('alert')).toContainText('Nothing was rolled back');
  expect((await keygate.call('GET', `/v1/gateways/${gateway_id}`)).revision).toBe(31);
});

// Guarantee: how many requests of a route may be in flight is set, shown and removed. While as many are, the page of the route
// says so, and the next request is refused, and explained without a time.
test('requests in flight of a route are bounded', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const held: (() => void)[] = [];
  upstream.handler = (_request, _body, response) => held.push(() => response.end('ok'));
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: spec({ '/orders': { get: {} } }),
  });
  const { route_id } = (await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`)).data[0];
  const path = `/v1/gateways/${gateway_id}/routes/${route_id}`;
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, `gateways/${gateway_id}/routes/${route_id}`);
  await expect(page.getByText('Any number of requests may be in flight at once.', { exact: false })).toBeVisible();
  const dialog = page.getByRole('dialog', { name: 'Requests in flight of the route' });
  const edit = () => page.getByRole('button', { name: 'Edit this limit' }).click();
  await edit();
  const most = dialog.getByRole('textbox', { name: 'Requests in flight' });
  const save = dialog.getByRole('button', { name: 'Save' });
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await most.fill('0');
  await save.click();
  await expect(most).toHaveAccessibleDescription(/Requests in flight must be .*1.*1,?000,?000/);
  await most.fill('1');
  await dialog.getByLabel('Counted for').selectOption('Each key on its own');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate routes update --gateway ${gateway_id} ${route_id} --concurrency 1/key`,
  );
  await page.keyboard.press('Escape');
  await save.click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByRole('main')).toContainText('At most 1 at once, of each key on its own.');
  expect(await keygate.call('GET', path)).toMatchObject({ concurrency: { max: 1, per: 'key' } });

  const first = keygate.request('/orders', key);
  await expect.poll(() => held.length).toBe(1);
  expect(await keygate.request('/orders', key)).toBe(429);
  const level = page.getByRole('table', { name: 'Limits in use' }).getByRole('row').filter({ hasText: 'in flight' });
  await expect(level).toContainText('0 of 1–');
  held[0]?.();
  expect(await first).toBe(200);
  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(1);

  await edit();
  await dialog.getByRole('button', { name: 'Remove the limit' }).click();
  await save.click();
  await expect(dialog).toHaveCount(0);
  expect(await keygate.call('GET', path)).toMatchObject({ concurrency: null });

  await page.getByRole('link', { name: 'Requests', exact: true }).click();
  await expect(page.getByRole('table')).toContainText('As many requests were in flight as the limit of 1 of the route allows');
  await page.getByRole('table').getByRole('link', { name: '/orders' }).first().click();
  await expect(page.locator('[data-explanation]')).toContainText(
    'because as many requests were in flight as the limit of 1 of the route /orders allows (',
  );
  await expect(page.getByRole('main')).toContainText('Left then0 of 1 request in flight');
  await expect(page.getByRole('main')).toContainText('Would have passedwhen one of those in flight had ended');
});

// Guarantee: whose addresses may use a route is set, shown and removed on its page, and holds at once.
test('addresses of a route are restricted', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: spec({ '/orders': { get: {} } }),
  });
  const { route_id } = (await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`)).data[0];
  const path = `/v1/gateways/${gateway_id}/routes/${route_id}`;
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, `gateways/${gateway_id}/routes/${route_id}`);
  const main = page.getByRole('main');
  await expect(main).toContainText('All addresses that the gateway and the key allow may use it.');
  const dialog = page.getByRole('dialog', { name: 'Addresses of the route' });
  const edit = () => page.getByRole('button', { name: 'Change addresses' }).click();
  await edit();
  const allowed = dialog.getByRole('textbox', { name: 'Allowed addresses' });
  const save = dialog.getByRole('button', { name: 'Save' });
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await allowed.fill('192.0.2.1');
  await save.click();
  await expect(allowed).toHaveAccessibleDescription(/has no prefix length: write 192\.0\.2\.1\/32/);
  await allowed.fill('192.0.2.0/24, 2001:db8::/32');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate routes update --gateway ${gateway_id} ${route_id} --allow-ip 192.0.2.0/24 --allow-ip 2001:db8::/32 --deny-ip ''`,
  );
  await page.keyboard.press('Escape');
  await save.click();
  await expect(dialog).toHaveCount(0);
  await expect(main).toContainText('Only addresses of 192.0.2.0/24, 2001:db8::/32 may use it.');
  expect(await keygate.call('GET', path)).toMatchObject({ allow_ips: ['192.0.2.0/24', '2001:db8::/32'], deny_ips: null });
  expect(await keygate.request('/orders', key)).toBe(403);

  await edit();
  await allowed.fill('');
  await save.click();
  await expect(dialog).toHaveCount(0);
  expect(await keygate.call('GET', path)).toMatchObject({ allow_ips: null, deny_ips: null });
  expect(await keygate.request('/orders', key)).toBe(200);
});

// Guarantee: the command of the limit editor says all that the form sends.
test('the limit editor shows its exact command, and what another session has set', async ({ page, keygate, watch }) => {
  watch.allowed.add(412);
  watch.allowed.add(422); // of the simulation, if it asks before the limit is valid again
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: 'http://127.0.0.1:1',
    spec: spec({ '/a': { get: {} } }),
  });
  const { data } = await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`);
  const path = `/v1/gateways/${gateway_id}/routes/${data[0].route_id}`;
  await keygate.call('PATCH', path, { rate_limit: { sustained: '5/s', daily: '100/day' } });
  await signIn(page, keygate, `gateways/${gateway_id}/routes/${data[0].route_id}`);
  await expect(page.getByRole('button', { name: 'As code' }).last()).toHaveAttribute('aria-disabled', 'true');
  await page.getByLabel('Sustained').fill("6/s'; date");
  await page.getByLabel('Daily cap').fill('');
  await page.getByRole('button', { name: 'As code' }).last().click();
  const code = page.getByRole('dialog', { name: 'The same as code' });
  await expect(code.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate routes update --gateway ${gateway_id} ${data[0].route_id} --sustained '6/s'\\''; date' --daily ''`,
  );
  await code.getByRole('button', { name: 'Close' }).click();
  await page.getByLabel('Sustained').fill('6/s');
  await keygate.call('PATCH', path, { rate_limit: { sustained: '9/s' } });
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await expect(page.getByRole('alert')).toContainText('The limit is now 9/s, 100/day; you have 6/s');
});

// Guarantee: a long name, path or address cuts itself off, and every list fits its place.
test('lists and headings with long text fit every width', async ({ page, keygate }) => {
  const long = 'w'.repeat(200);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: long,
    upstream_url: `http://127.0.0.1:1/${long}`,
    spec: spec({ [`/${long}/{id}`]: { get: {}, put: {} } }),
  });
  const { key_id } = await keygate.call('POST', '/v1/keys', { name: long, owner: long, scope: `read:${'s'.repeat(100)}`, gateway_id });
  await signIn(page, keygate, 'gateways');
  for (const path of [
    'gateways',
    `gateways/${gateway_id}`,
    `gateways/${gateway_id}/routes`,
    `gateways/${gateway_id}/revisions`,
    `gateways/${gateway_id}/settings`,
    'keys',
    `keys/${key_id}`,
  ]) {
    for (const width of [1280, 768, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(keygate.url + path);
      await expect(page.locator('main .skeleton')).toHaveCount(0);
      await expect(page.locator('main').getByText(/w{20}/).filter({ visible: true }).first()).toBeVisible();
      expect.soft(await overflowing(page), `${path} at ${width} px`).toEqual([]);
      const open = page.getByRole('navigation', { name: 'Pages of the gateway' }).locator('[aria-current]');
      if (path.startsWith('gateways/')) await expect(open).toBeInViewport({ ratio: 0.95 });
    }
  }
});

// Guarantee: what a commit, a document, an address or an upstream says is only text.
test('markup of a gateway, its repository and its documents is shown as text', async ({ page, keygate, watch }) => {
  const markup = '<img src=x onerror="document.title=1">';
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: markup,
    upstream_url: 'http://127.0.0.1:1/%3Cimg%3E',
    spec: spec({ '/a': { get: {} } }),
  });
  const { key } = await keygate.call('POST', '/v1/keys', { name: markup, owner: markup, scope: 'read' });
  await keygate
    .call('PUT', `/v1/gateways/${gateway_id}/repository`, {
      ...repository,
      branch: '<script>alert(1)</script>',
      path: '<img src=x onerror=alert(1)>.yaml',
    })
    .catch(() =>
      keygate.call('PUT', `/v1/gateways/${gateway_id}/repository`, { ...repository, path: '<img src=x onerror=alert(1)>.yaml' }),
    );
  expect(await keygate.request('/a', key)).toBe(502);
  const revision = {
    revision_id: 'rev_1',
    number: 1,
    source: 'repository',
    kind: 'spec',
    author: `${markup} <a@example.com>`,
    commit: markup.repeat(3),
    created_at: new Date().toISOString(),
    added: 1,
    removed: 0,
    changed: 0,
  };
  await page.route('**/v1/gateways/*/revisions?**', (r) => r.fulfill({ json: { data: [revision], next_cursor: null } }));
  await page.route('**/v1/**/diff?**', (r) =>
    r.fulfill({
      json: {
        added: [{ methods: ['GET'], path: `/${markup}` }],
        removed: [],
        changed: [{ methods: ['GET'], path: '/a', changes: [{ field: markup, before: markup, after: { x: markup } }] }],
        unchanged: 0,
        warnings: [markup, markup],
        revision: 1,
        gateway: null,
      },
    }),
  );
  await page.route('**/v1/gateways/*/repository', async (r) => {
    const answer = await r.fetch();
    await r.fulfill({
      response: answer,
      json: { ...(await answer.json()), state: 'error', last_error: `remote: ${markup}`, warnings: [markup] },
    });
  });
  await signIn(page, keygate, 'gateways');
  for (const path of [
    'gateways',
    `gateways/${gateway_id}`,
    `gateways/${gateway_id}/repository`,
    `gateways/${gateway_id}/revisions?from=0&to=1`,
    'keys',
  ]) {
    await page.goto(keygate.url + path);
    await expect(page.locator('main').getByText('<img').filter({ visible: true }).first()).toBeVisible();
    await expect(page.locator('main .skeleton')).toHaveCount(0);
    expect(await page.locator('main img, main script').count(), path).toBe(0);
    expect(await page.title(), path).not.toBe('1');
  }
  watch.check();
});
