import { accessible, expect, type Keygate, Service, signIn, test } from './keygate';
import { overflowing, settled } from './screens';

const gateway = (keygate: Keygate, upstream: Service) =>
  keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /a, methods: [GET]}, {path: /b, methods: [GET]}]',
  });

// Guarantee: the page of an upstream, that of a target and the way of a request show in which state each target is on each node, why, from
// when until when, and what is in flight there; the list of upstreams says how many targets are in service. A target that was ejected
// is returned by hand on its page, but not by a key that may only read.
test('the state of a target is shown, and an ejection ended', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await gateway(keygate, upstream);
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  const path = `/v1/gateways/${gateway_id}/upstreams/default`;
  await keygate.call('PATCH', path, {
    targets: [{ url: upstream.url }, { url: 'http://127.0.0.1:9' }],
    balance: 'round_robin',
    ejection: { failures: 1, base: '1h', max: '1h' },
  });
  for (let i = 0; i < 20; i++) expect(await keygate.request('/a', key)).toBe(200);
  await signIn(page, keygate, `gateways/${gateway_id}`);
  const way = page.getByRole('list', { name: 'The way of a request' });
  await expect(way.getByRole('row').filter({ hasText: '127.0.0.1:9' }).first()).toContainText(/Ejected\s*since .+ until .+/);
  await way.getByRole('row').filter({ hasText: upstream.url }).getByRole('link', { name: 'default' }).click();
  const state = page.getByRole('group', { name: 'State of http://127.0.0.1:9', exact: true });
  await expect(state).toContainText(/Ejected: connect\s*since .+ until .+/);
  await expect(page.getByRole('group', { name: `State of ${upstream.url}` })).toContainText('Healthy');
  await settled(page);
  await accessible(page);
  await page.goto(`${keygate.url}gateways/${gateway_id}/upstreams`);
  const row = page.getByRole('table', { name: 'Upstreams' }).getByRole('row').filter({ hasText: 'default' });
  await expect(row).toContainText('1 of 2 in service');
  await expect(row).toContainText('1 ejected');
  await expect(row).toContainText('One after the other');
  const target = `gateways/${gateway_id}/upstreams/default/target?url=${encodeURIComponent('http://127.0.0.1:9')}`;
  await page.goto(keygate.url + target);
  const node = page.getByRole('table', { name: 'State of http://127.0.0.1:9' }).getByRole('row').nth(1);
  await expect(node).toContainText(/Ejected: connect\s*since .+ until .+/);
  await settled(page);
  await accessible(page);
  await page.getByRole('button', { name: 'Return' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('ends on every node');
  await dialog.getByRole('button', { name: 'Return the target' }).click();
  await expect(node).not.toContainText('Ejected');
  await expect(page.getByRole('button', { name: 'Return' })).toHaveCount(0);

  await keygate.call('PATCH', path, { health: { tcp: true, interval: '1s', unhealthy: 1 } });
  await expect(node).toContainText(/Unhealthy: connect\s*since .+/);
  for (let i = 0; i < 5; i++) expect(await keygate.request('/a', key)).toBe(200);
  await keygate.call('PATCH', path, { health: null });
  for (let i = 0; i < 5; i++) expect(await keygate.request('/a', key)).toBe(200);
  await expect(node).toContainText('Ejected');
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, target, reader.key);
  for (const name of ['Drain', 'Return'])
    await expect(page.getByRole('button', { name, exact: true })).toHaveAccessibleDescription(/needs “write”/);
});

// Guarantee: the page of a request that failed at the targets of an upstream says how each attempt ended, and which targets it was not
// sent to because they were ejected or drained.
test('the page of a request says which targets were tried', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(502);
  const { gateway_id } = await gateway(keygate, upstream);
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await keygate.call('PATCH', `/v1/gateways/${gateway_id}/upstreams/default`, {
    targets: [{ url: 'http://127.0.0.1:9' }, { url: 'http://127.0.0.1:7', backup: true }, { url: upstream.url, drain: true }],
    ejection: { failures: 1, base: '1h', max: '1h' },
    retries: { attempts: 0 },
  });
  for (let i = 0; i < 2; i++) expect(await keygate.request('/a', key)).toBe(502);
  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(2);
  const { request_id } = (await keygate.call('GET', '/v1/requests')).data[0];
  await signIn(page, keygate, `requests/${request_id}`);
  await expect(page.getByRole('list', { name: 'Attempts' })).toContainText('attempt 1 → 127.0.0.1:7: connection refused');
  const untried = page.getByRole('list', { name: 'Targets that were not tried' }).getByRole('listitem');
  await expect(untried).toHaveCount(2);
  await expect(untried.nth(0)).toContainText(/127\.0\.0\.1:9 \(ejected \d\d:\d\d:\d\d after 1 failure, for 3600 s\)/);
  await expect(untried.nth(1)).toContainText(`${upstream.url.slice('http://'.length)} (draining)`);
  await settled(page);
  await accessible(page);
  await page.screenshot({ path: '.shots/request-targets.png', fullPage: true });
});

// Guarantee: a gateway with one target sees nothing of upstreams but how to get more; a second target is added, weighed, drained,
// let in again and removed, each in force at once, and the way of a request ends in the targets.
test('a second target is added, weighed, drained and removed', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422).add(409);
  const second = await Service.start();
  const { gateway_id } = await gateway(keygate, upstream);
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  const path = `/v1/gateways/${gateway_id}/upstreams/default`;
  await signIn(page, keygate, `gateways/${gateway_id}`);
  const way = page.getByRole('list', { name: 'The way of a request' });
  await expect(way).toContainText(upstream.url);
  await expect(way.getByRole('table')).toHaveCount(0);
  const tabs = page.getByRole('navigation', { name: 'Pages of the gateway' });
  await expect(tabs.getByRole('link', { name: 'Upstreams' })).toHaveCount(0);

  await way.getByRole('button', { name: 'Add a target' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('URL')).toBeFocused();
  await dialog.getByLabel('URL').fill('nowhere');
  await dialog.getByRole('button', { name: 'Add the target' }).click();
  await expect(dialog.getByLabel('URL')).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('URL').fill(upstream.url);
  await dialog.getByRole('button', { name: 'Add the target' }).click();
  await expect(dialog.getByRole('alert')).toContainText('has this target already');
  await dialog.getByLabel('URL').fill(second.url);
  await dialog.getByLabel('Weight').fill('1001');
  await dialog.getByRole('button', { name: 'Add the target' }).click();
  await expect(dialog.getByLabel('Weight')).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('Weight').fill('2');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate targets add --gateway ${gateway_id} ${second.url} --weight 2`,
  );
  await page.keyboard.press('Escape');
  await dialog.getByRole('button', { name: 'Add the target' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page).toHaveURL(/\/upstreams\/default$/); // a copied link opens no dialog
  const targets = page.getByRole('list', { name: 'Targets' });
  const line = targets.getByRole('listitem').filter({ hasText: second.url });
  await expect(line).toContainText('Weight 2');
  for (let i = 0; i < 20; i++) expect(await keygate.request('/a', key)).toBe(200);
  expect(upstream.requests.length).toBeGreaterThan(0);
  expect(second.requests.length).toBeGreaterThan(0);

  await line.getByRole('button', { name: 'Edit' }).focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await expect(line.getByRole('button', { name: 'Edit' })).toBeFocused();
  await line.getByRole('button', { name: 'Edit' }).click();
  await dialog.getByLabel('Weight').fill('lots');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByLabel('Weight')).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('Weight').fill('5');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(line).toContainText('Weight 5');

  await line.getByRole('button', { name: 'Edit' }).click();
  await dialog.getByLabel('Look up its name').selectOption('srv');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByRole('alert')).toContainText('resolve srv');
  await dialog.getByLabel('Look up its name').selectOption('a');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate targets update --gateway ${gateway_id} ${second.url} --resolve a`,
  );
  await page.keyboard.press('Escape');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(line).toContainText('Addresses of its name');
  for (let i = 0; i < 20; i++) expect(await keygate.request('/a', key)).toBe(200);

  await line.getByRole('button', { name: 'Drain' }).click();
  await expect(dialog).toContainText('gets no more requests, on every node');
  await dialog.getByRole('button', { name: 'Drain the target' }).click();
  await expect(line).toContainText('Draining');
  await expect(line).toContainText('nothing in flight');
  const before = second.requests.length;
  for (let i = 0; i < 10; i++) expect(await keygate.request('/a', key)).toBe(200);
  expect(second.requests.length).toBe(before);
  await targets.getByRole('listitem').filter({ hasText: upstream.url }).getByRole('button', { name: 'Drain' }).click();
  await expect(dialog).toContainText('its requests get a 502 then');
  await dialog.getByRole('button', { name: 'Cancel' }).click();

  await tabs.getByRole('link', { name: 'Settings' }).click();
  await expect(page.getByLabel('Address')).toBeDisabled();
  await expect(page.getByLabel('Address')).toHaveAccessibleDescription(/several targets/);
  await tabs.getByRole('link', { name: 'Overview' }).click();
  await expect(way).toContainText('2 targets');
  await expect(way.getByRole('row').filter({ hasText: second.url })).toContainText('Draining');
  await way.getByRole('row').filter({ hasText: second.url }).getByRole('link', { name: 'default' }).click();
  await line.getByRole('button', { name: 'End draining' }).click();
  await dialog.getByRole('button', { name: 'End draining' }).click();
  await expect(line.getByText('Draining', { exact: true })).toHaveCount(0);

  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').fill('add a target');
  await page.keyboard.press('Enter');
  await expect(dialog.getByLabel('URL')).toBeFocused();
  await dialog.getByRole('button', { name: 'Cancel' }).click();

  await line.getByRole('button', { name: 'Remove' }).click();
  await expect(dialog).toContainText(second.url);
  expect((await keygate.call('GET', path)).targets).toHaveLength(2);
  await dialog.getByRole('button', { name: 'Remove the target' }).click();
  await expect(line).toHaveCount(0);
  await expect(targets.getByRole('button', { name: 'Remove' })).toHaveAccessibleDescription(/the last target/);
  await tabs.getByRole('link', { name: 'Overview' }).click();
  await expect(way).toContainText(upstream.url);
  await expect(tabs.getByRole('link', { name: 'Upstreams' })).toHaveCount(0);
  await second.stop();
});

// Guarantee: targets.md, 9. The way of a request ends in the targets with their share of the last hour, and each has a page with
// its traffic, on which it is drained and takes part again. What is not a target any more is said to be none.
test('targets have their share of the requests, and a page', async ({ page, keygate, upstream }) => {
  const second = await Service.start();
  const { gateway_id } = await gateway(keygate, upstream);
  const path = `/v1/gateways/${gateway_id}/upstreams/default`;
  await keygate.call('PATCH', path, { targets: [{ url: upstream.url }, { url: second.url }], balance: 'round_robin' });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  for (let i = 0; i < 10; i++) expect(await keygate.request('/a', key)).toBe(200);
  expect(await keygate.request('/a', 'none')).toBe(401);
  await signIn(page, keygate, '');
  const top = page.getByRole('table', { name: 'Top targets' });
  for (const { url } of [upstream, second]) await expect(top.getByRole('row').filter({ hasText: new URL(url).host })).toContainText('5');
  await page.goto(`${keygate.url}gateways`);
  await expect(page.getByRole('row').filter({ hasText: 'orders' })).toContainText('and 1 more');
  await page.goto(`${keygate.url}gateways/${gateway_id}`);
  const row = page.getByRole('list', { name: 'The way of a request' }).getByRole('row').filter({ hasText: second.url });
  await expect(row).toContainText('50 %');
  await row.getByRole('link', { name: second.url }).click();

  await expect(page.getByRole('heading', { level: 2, name: second.url })).toBeVisible();
  const figures = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Traffic', exact: true }) });
  await expect(figures).toContainText('50 %');
  await expect(figures).toContainText(/Requests\s*5,/);
  await expect(figures).toContainText(/Errors\s*0/);
  await page.getByRole('group', { name: 'Range' }).getByRole('button', { name: '15m' }).click();
  await expect(page).toHaveURL(/range=15m/);
  await expect(figures).toContainText(/Requests\s*5,/);
  await accessible(page);
  const dialog = page.getByRole('dialog');
  await page.getByRole('button', { name: 'Drain' }).click();
  await dialog.getByRole('button', { name: 'Drain the target' }).click();
  await expect(page.getByText('Draining', { exact: true })).toBeVisible();
  await expect(page.getByText('It gets no more requests, and has nothing in flight. It can be stopped.')).toBeVisible();
  await page.getByRole('button', { name: 'End draining' }).click();
  await dialog.getByRole('button', { name: 'End draining' }).click();
  await expect(page.getByText('Draining', { exact: true })).toHaveCount(0);
  await page.getByRole('navigation', { name: 'Breadcrumb' }).getByRole('link', { name: 'default' }).click();
  const line = page.getByRole('list', { name: 'Targets' }).getByRole('listitem').filter({ hasText: second.url });
  await expect(line).toContainText('Share, 1 h 50 %');
  await line.getByRole('link', { name: second.url }).click();
  await keygate.call('DELETE', `${path}/targets?url=${encodeURIComponent(second.url)}`);
  await page.reload();
  await expect(page.getByText('It is not a target of this upstream any more')).toBeVisible();
  await second.stop();
});

// Guarantee: an upstream is created, a route leads to it, and it can be deleted only when none does any more; the refusal says which
// route does.
test('an upstream is created, a route leads to it, and it is deleted', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(409).add(422);
  const next = await Service.start();
  const { gateway_id } = await gateway(keygate, upstream);
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, `gateways/${gateway_id}/routes`);
  const routes = page.getByRole('table', { name: 'Routes' });
  await expect(routes).toContainText('/b');
  await expect(routes).not.toContainText('default');
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').fill('an upstream');
  await page.getByRole('option', { name: 'Add an upstream' }).click();

  await page.getByLabel('Name', { exact: true }).fill('default');
  const first = page.getByRole('group', { name: 'Target 1' });
  await first.getByLabel('URL').fill(next.url);
  await page.getByRole('button', { name: 'Create the upstream' }).click();
  await expect(page.getByLabel('Name', { exact: true })).toHaveAccessibleDescription(/is taken/);
  await page.getByLabel('Name', { exact: true }).fill('Next');
  await page.getByRole('button', { name: 'Create the upstream' }).click();
  await expect(page.getByLabel('Name', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Name', { exact: true }).fill('next');
  await first.getByLabel('URL').fill('ftp://a');
  await page.getByRole('button', { name: 'Create the upstream' }).click();
  await expect(first.getByLabel('URL')).toHaveAttribute('aria-invalid', 'true');
  await expect(first.getByLabel('URL')).toBeFocused();
  await first.getByLabel('URL').fill(next.url);
  await page.getByRole('button', { name: 'Create the upstream' }).click();
  await expect(page.getByRole('heading', { level: 2, name: 'next', exact: true })).toBeVisible();

  const tabs = page.getByRole('navigation', { name: 'Pages of the gateway' });
  await tabs.getByRole('link', { name: 'Routes' }).click();
  await routes.getByRole('link', { name: '/b' }).click();
  await expect(page.getByText('Its requests go to default.')).toBeVisible();
  await page.getByRole('button', { name: 'Change the upstream' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Upstream').selectOption('next');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  expect([await keygate.request('/a', key), await keygate.request('/b', key)]).toEqual([200, 200]);
  expect([upstream.requests, next.requests].map((r) => r.map((one) => one.path))).toEqual([['/a'], ['/b']]);
  await tabs.getByRole('link', { name: 'Routes' }).click();
  await expect(routes.getByRole('row').filter({ hasText: '/b' })).toContainText('next');
  await page.getByRole('button', { name: 'Create a route' }).click();
  await dialog.getByLabel('Path').fill('/c');
  await dialog.getByLabel('Upstream').selectOption('next');
  await dialog.getByRole('button', { name: 'Create the route' }).click();
  await expect(routes.getByRole('row').filter({ hasText: '/c' })).toContainText('next');

  await tabs.getByRole('link', { name: 'Upstreams' }).click();
  await page.getByRole('table', { name: 'Upstreams' }).getByRole('link', { name: 'default' }).click();
  await expect(page.getByRole('button', { name: 'Delete' })).toHaveAccessibleDescription(/Routes that name no upstream use it/);
  await tabs.getByRole('link', { name: 'Upstreams' }).click();
  await page.getByRole('table', { name: 'Upstreams' }).getByRole('link', { name: 'next' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Delete the upstream' }).click();
  await expect(dialog.getByRole('alert')).toContainText(/the route \/[bc] .* names the upstream/);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  const { data } = await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`);
  for (const r of data.filter((one: { upstream: string }) => one.upstream === 'next')) {
    await page.goto(`${keygate.url}gateways/${gateway_id}/routes/${r.route_id}`);
    await page.getByRole('button', { name: 'Change the upstream' }).click();
    await dialog.getByLabel('Upstream').selectOption('default');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await expect(page.getByText('Its requests go to default.')).toBeVisible();
  }
  await tabs.getByRole('link', { name: 'Upstreams' }).click();
  await page.getByRole('table', { name: 'Upstreams' }).getByRole('link', { name: 'next' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Delete the upstream' }).click();
  await expect(page).toHaveURL(/\/upstreams$/);
  await expect(page.getByRole('table', { name: 'Upstreams' })).not.toContainText('next');
  await next.stop();
});

// Guarantee: a form that was not touched sends nothing; what was touched is sent, secrets are never shown, what the server
// says stands at its field, another session's change is not lost, and targets are removed only after a question.
test('an upstream is edited', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(412).add(422);
  const { gateway_id } = await gateway(keygate, upstream);
  const path = `/v1/gateways/${gateway_id}/upstreams/next`;
  await keygate.call('PUT', path, {
    targets: [{ url: 'http://10.0.0.1' }, { url: 'http://10.0.0.2' }],
    headers: { 'X-Token': 'hush-hush' },
  });
  const sent: string[] = [];
  page.on('request', (r) => {
    if (r.method() === 'PATCH') sent.push(r.postData() ?? '');
  });
  await signIn(page, keygate, `gateways/${gateway_id}/upstreams/next`);
  await expect(page.getByText('After 5 failures in a row (connect, reset), for 10s, at most 300s')).toBeVisible();
  await page.getByRole('main').getByRole('button', { name: 'Edit' }).first().click();
  const save = page.getByRole('button', { name: 'Save', exact: true });
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await page.getByRole('group', { name: 'Target 1' }).getByLabel('Weight').press('Enter');
  await expect(page.getByLabel('Headers')).toHaveValue('X-Token: ***');

  await page.getByRole('button', { name: 'Add a target' }).click();
  const third = page.getByRole('group', { name: 'Target 3' });
  await third.getByLabel('URL').fill('https://10.0.0.3');
  await page.getByLabel('Balance').selectOption('hash');
  await page.getByRole('group', { name: 'What counts as a failure' }).getByLabel('503').check();
  await page.getByLabel('Failures in a row').fill('0');
  await save.click();
  await expect(third.getByLabel('URL')).toHaveAccessibleDescription(/must start with http/);
  await third.getByLabel('URL').fill('http://10.0.0.3');
  await expect(page.getByLabel('Failures in a row')).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Failures in a row').fill('3');
  await save.click();
  await expect(page.getByLabel('Headers')).toHaveAccessibleDescription(/must be given again/);
  await page.getByLabel('Headers').fill('X-Token: hush-again');
  await save.click();
  await expect(page.getByLabel('Hash on')).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Hash on').fill('header:X-Session');
  await keygate.call('PATCH', path, { timeout: '7s' });
  sent.length = 0;
  await save.click();
  const conflict = page.getByRole('alert').filter({ hasText: 'Timeout is now 7s' });
  await expect(conflict).toBeVisible();
  await conflict.getByRole('button', { name: 'Keep my changes' }).click();
  await save.click();
  await expect(page.getByRole('heading', { level: 2, name: 'next', exact: true })).toBeVisible();
  expect(sent.map((s) => Object.keys(JSON.parse(s)).toSorted())).toEqual(
    [1, 2].map(() => ['balance', 'ejection', 'hash_on', 'headers', 'targets']),
  );
  expect(await keygate.call('GET', path)).toMatchObject({
    balance: 'hash',
    hash_on: 'header:X-Session',
    timeout: '7s',
    ejection: { failures: 3, on: ['connect', 'reset', '503'] },
    headers: { 'X-Token': '***' },
  });
  expect((await page.content()).includes('hush')).toBe(false);

  await page.getByRole('main').getByRole('button', { name: 'Edit' }).first().click();
  await page.getByRole('button', { name: 'Remove target 3' }).click();
  await page.getByLabel('Eject targets that fail').uncheck();
  await expect(page.getByLabel('Failures in a row')).toHaveCount(0);
  await save.click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('http://10.0.0.3');
  await dialog.getByRole('button', { name: 'Save, and remove the target' }).click();
  await expect(page.getByRole('list', { name: 'Targets' }).getByRole('listitem')).toHaveCount(2);
  await expect(page.getByRole('main')).toContainText('EjectionOff');
  expect(await keygate.call('GET', path)).toMatchObject({ ejection: false, targets: [{}, {}] });
});

// Guarantee: an upstream is checked by its form, which keeps the headers of checks that are not touched and shows none of their values.
test('the checks of an upstream', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const { gateway_id } = await gateway(keygate, upstream);
  const path = `/v1/gateways/${gateway_id}/upstreams/default`;
  const sent: string[] = [];
  page.on('request', (r) => {
    if (r.method() === 'PATCH') sent.push(r.postData() ?? '');
  });
  await signIn(page, keygate, `gateways/${gateway_id}/upstreams/default`);
  await expect(page.getByRole('main')).toContainText('ChecksNone');
  const edit = page.getByRole('main').getByRole('button', { name: 'Edit' }).first();
  const save = page.getByRole('button', { name: 'Save', exact: true });
  await edit.click();
  await page.getByLabel('Path', { exact: true }).fill('healthz');
  await page.getByLabel('Sent with checks').fill('X-Probe: hush-probe');
  await save.click();
  await expect(page.getByLabel('Path', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await page.getByLabel('Path', { exact: true }).fill('/healthz');
  await save.click();
  await expect(page.getByRole('main')).toContainText(
    'GET /healthz each 10s, within 2s, with X-Probe, good is 200-399; out after 2 bad, in after 2 good',
  );
  await edit.click();
  await expect(page.getByLabel('Sent with checks')).toHaveValue('X-Probe: ***');
  await page.getByLabel('Interval', { exact: true }).fill('5s');
  await save.click();
  await expect(page.getByRole('main')).toContainText('GET /healthz each 5s');
  expect(JSON.parse(sent.at(-1)!)).toEqual({
    health: { path: '/healthz', tcp: false, interval: '5s', timeout: '2s', unhealthy: 2, healthy: 2, statuses: '200-399' },
  });
  expect(await keygate.call('GET', path)).toMatchObject({ health: { interval: '5s', headers: { 'X-Probe': '***' } } });
  expect((await page.content()).includes('hush')).toBe(false);
  await edit.click();
  await page.getByLabel('Path', { exact: true }).fill('');
  await save.click();
  await expect(page.getByRole('main')).toContainText('ChecksNone');
  expect(await keygate.call('GET', path)).toMatchObject({ health: null });
});

// Guarantee: a key that may only read sees everything, and why it may change nothing.
test('a key without write is told why', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await gateway(keygate, upstream);
  await keygate.call('POST', `/v1/gateways/${gateway_id}/upstreams/default/targets`, { url: 'http://10.0.0.2', backup: true });
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  const writer = await keygate.call('POST', '/v1/keys', {
    name: 'writer',
    level: 'account',
    scope: `write:gateways/${gateway_id}/upstreams read`,
  });
  await signIn(page, keygate, `gateways/${gateway_id}`, reader.key);
  const refused = async (name: string, word: string) => {
    const button = page.getByRole('main').getByRole('button', { name }).first();
    await expect(button).toHaveAttribute('aria-disabled', 'true');
    await expect(button).toHaveAccessibleDescription(new RegExp(`needs “${word}”`));
  };
  for (const name of ['Add a target', 'Add an upstream']) await refused(name, 'write');
  await page.getByRole('table', { name: 'Targets' }).getByRole('link', { name: 'default' }).first().click();
  for (const name of ['Add a target', 'Edit', 'Drain']) await refused(name, 'write');
  await refused('Remove', 'admin');
  await page.goto(`${keygate.url}gateways/${gateway_id}/new-upstream`);
  await refused('Create the upstream', 'write');
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, `gateways/${gateway_id}/upstreams/default`, writer.key);
  await page.getByRole('button', { name: 'Drain' }).first().click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drain the target' }).click();
  await expect(page.getByText('Draining', { exact: true })).toBeVisible();
  await refused('Remove', 'admin');
});

// Guarantee: the screens of upstreams are accessible in both themes and fit every width, with long names and many targets.
test('many upstreams and long names fit every width', async ({ page, keygate, upstream, watch }) => {
  const { gateway_id } = await gateway(keygate, upstream);
  const name = 'n'.repeat(64);
  const path = `/v1/gateways/${gateway_id}/upstreams`;
  for (const n of ['settings', 'edit', name])
    await keygate.call('PUT', `${path}/${n}`, {
      targets: [5, 1, 1, 1, 1].map((weight, i) => ({
        url: `https://10.0.0.${i}/${'w'.repeat(150)}`,
        weight,
        backup: i === 3,
        drain: i > 2,
      })),
      headers: { 'X-Token': 'x' },
      client_certificate: null,
    });
  const { data } = await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`);
  await keygate.call('PATCH', `/v1/gateways/${gateway_id}/routes/${data[0].route_id}`, { upstream: name });
  await signIn(page, keygate, 'gateways');
  for (const [at, shown] of [
    ['', '4 more targets'],
    ['/upstreams', name],
    [`/upstreams/${name}`, name],
    ['/upstreams/settings', 'Fewest requests in flight'],
    [`/upstreams/${name}/edit`, name],
    ['/new-upstream', 'Add an upstream'],
    ['/routes', name],
    [`/routes/${data[0].route_id}`, name],
  ] as const) {
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(`${keygate.url}gateways/${gateway_id}${at}`);
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme });
      await settled(page);
      await expect(page.locator('main').getByText(shown).filter({ visible: true }).first()).toBeVisible();
      await test.step(`${at}, ${theme}`, () => accessible(page, theme === 'light' ? 'all' : 'colours'));
    }
    for (const width of [1400, 900, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      expect.soft(await overflowing(page), `${at} at ${width} px`).toEqual([]);
    }
  }
  watch.check();
});
