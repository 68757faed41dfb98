import type { Page } from '@playwright/test';
import { expect, type Keygate, type Service, signIn, test } from './keygate';

const gateway = (keygate: Keygate, upstream: Service) =>
  keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, config: 'routes: [{path: /*, methods: [GET]}]' });

// secretOf copies the key that a dialog shows, and closes it.
async function secretOf(page: Page): Promise<string> {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const secret = (await page.locator('[data-secret]').textContent()) ?? '';
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByRole('button', { name: 'Done' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  return secret;
}

// Guarantee: a plan, an owner with it and a key of the owner are made in the dashboard, and a request that a limit of the
// plan refuses names both, and leads to the plan.
test('a plan limits the keys of an owner, and a refused request names it', async ({ page, keygate, upstream }) => {
  await gateway(keygate, upstream);
  await signIn(page, keygate, 'plans');
  await page.getByRole('button', { name: 'Create a plan' }).first().click();
  await page.getByLabel('Name', { exact: true }).first().fill('pro');
  await page.getByLabel('Sustained').fill('2/h');
  await page.getByLabel('Counts').selectOption('owner');
  await page.getByRole('button', { name: 'Create the plan' }).click();
  await expect(page.getByRole('heading', { name: 'pro', level: 1 })).toBeVisible();
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText('2 per hour, all keys of an owner together');

  await page.getByRole('link', { name: 'Owners', exact: true }).click();
  await page.getByRole('button', { name: 'Create an owner' }).first().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Identifier').fill('customer-42');
  await dialog.getByLabel('Plan').selectOption('pro');
  await dialog.getByRole('button', { name: 'Create the owner' }).click();
  await expect(page.getByRole('heading', { name: 'customer-42' })).toBeVisible();
  await expect(page.getByRole('list', { name: 'Limits of plans' })).toContainText('plan pro, of the owner');

  await page.goto(`${keygate.url}keys?create=1`);
  await page.getByLabel('Name', { exact: true }).fill('app');
  await page.getByLabel('Owner').fill('customer-42');
  await page.getByRole('button', { name: 'Create the key' }).click();
  const secret = await secretOf(page);
  expect([await keygate.request('/', secret), await keygate.request('/', secret), await keygate.request('/', secret)]).toEqual([
    200, 200, 429,
  ]);

  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(1);
  await page.getByRole('link', { name: 'Requests', exact: true }).click();
  await page.getByRole('table').getByRole('link', { name: '/' }).first().click();
  await expect(page.locator('[data-explanation]')).toContainText('the limit “per-minute” of 2 requests of the plan “pro” was used up');
  await page.getByRole('link', { name: /of the plan/ }).click();
  await expect(page.getByRole('heading', { name: 'pro', level: 1 })).toBeVisible();
});

// Guarantee: suspending an owner asks, says what it does, and refuses its keys at once; resuming lets them in again.
test('an owner is suspended and resumed', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(409);
  await gateway(keygate, upstream);
  const key = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'customer-42' });
  await signIn(page, keygate, `owners/${key.owner_id}`);
  await page.getByRole('button', { name: 'Suspend' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('The owner customer-42 has 1 active key.');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText('keygate owners suspend customer-42');
  await page.keyboard.press('Escape');
  expect(await keygate.request('/', key.key)).toBe(200);
  await dialog.getByRole('button', { name: 'Suspend the owner' }).click();
  await expect(page.getByText('Suspended', { exact: true })).toBeVisible();
  expect(await keygate.request('/', key.key)).toBe(403);
  await page.goto(`${keygate.url}keys/${key.key_id}`);
  await expect(page.getByText('Its owner is suspended')).toBeVisible();
  await page.getByRole('link', { name: 'the owner', exact: true }).click();

  await page.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByRole('button', { name: 'Delete the owner' }).click();
  await expect(dialog.getByRole('alert')).toBeVisible(); // it has an active key
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Resume' }).click();
  await dialog.getByRole('button', { name: 'Resume the owner' }).click();
  await expect(page.getByRole('button', { name: 'Suspend' })).toBeVisible(); // its key is shown as active all the time
  expect(await keygate.request('/', key.key)).toBe(200);
});

// Guarantee: a form of a plan that was not touched sends nothing; what was touched is sent, with limits as a whole; what
// the server says stands at the field of its limit; and what another session has changed is not lost.
test('a plan is edited', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422).add(412);
  const { gateway_id } = await gateway(keygate, upstream);
  const plan = await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [{ name: 'one', sustained: '10/s' }] });
  const sent: string[] = [];
  page.on('request', (r) => {
    if (r.method() === 'PATCH') sent.push(r.postData() ?? '');
  });
  await signIn(page, keygate, `plans/${plan.plan_id}/edit`);
  await expect(page.getByRole('button', { name: 'Save' })).toHaveAttribute('aria-disabled', 'true');
  await page.getByLabel('Title').press('Enter');
  await page.getByRole('button', { name: 'Add a limit' }).click();
  const second = page.getByRole('group', { name: 'Limit 2' });
  await second.getByLabel('Name').fill('two');
  await second.getByLabel('Sustained').fill('lots');
  await second.getByLabel('Gateway', { exact: true }).selectOption(gateway_id);
  await second.getByLabel('Routes').fill('/orders\norders');
  await page.getByRole('button', { name: 'Add a limit' }).click();
  const third = page.getByRole('group', { name: 'Limit 3' });
  await third.getByLabel('Name').fill('per-minute');
  await third.getByLabel('Kind').selectOption('Requests in flight');
  await expect(third.getByLabel('Name')).toHaveValue('parallel');
  await expect(third.getByLabel('Meter')).toHaveCount(0);
  const inFlight = third.getByRole('textbox', { name: 'Requests in flight' });
  await inFlight.fill('0');
  expect(sent).toEqual([]);
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(second.getByLabel('Sustained')).toHaveAccessibleDescription(/lots/);
  await expect(inFlight).toHaveAccessibleDescription(/must be .*1.*1,?000,?000/);
  await expect(second.getByLabel('Sustained')).toBeFocused();
  await expect(second.getByLabel('Routes')).toHaveAccessibleDescription(/must/);

  await keygate.call('PATCH', `/v1/plans/${plan.plan_id}`, { title: 'Professional' });
  await second.getByLabel('Sustained').fill('5/s');
  await second.getByLabel('Routes').fill('/orders');
  await inFlight.fill('1,000');
  await expect(page.getByRole('status').filter({ hasText: 'parallel' })).toContainText('how long requests took is not kept');
  sent.length = 0;
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Title is now Professional')).toBeVisible();
  await page.getByRole('button', { name: 'Keep my changes' }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('heading', { name: 'pro', level: 1 })).toBeVisible();
  const body = {
    limits: [
      { name: 'one', sustained: '10/s', per: 'key' },
      { name: 'two', sustained: '5/s', per: 'key', gateway_id, routes: ['/orders'] },
      { name: 'parallel', concurrency: 1000, per: 'key' },
    ],
  };
  expect(sent.map((s) => JSON.parse(s) as unknown)).toEqual([body, body]);
  expect(await keygate.call('GET', `/v1/plans/${plan.plan_id}`)).toMatchObject({
    title: 'Professional',
    limits: [{}, { routes: ['/orders'] }, { concurrency: 1000, meter: 'requests' }],
  });
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText('1,000 requests in flight, each key on its own');
});

// Guarantee: a limit of any meter is made in the editor: a wrong name is named as it is typed, those of other plans are
// suggested, the limit and its use are shown with the name of the meter, and one of a route's cost is refused by it.
test('a plan limits a meter of the account', async ({ page, keygate, upstream }) => {
  const { gateway_id } = await gateway(keygate, upstream);
  const { route_id } = (await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`)).data[0];
  await keygate.call('PATCH', `/v1/gateways/${gateway_id}/routes/${route_id}`, { cost: [{ meter: 'tokens', from: { request: 900 } }] });
  await keygate.call('POST', '/v1/plans', { name: 'other', limits: [{ name: 'money', quota: '500/day', meter: 'cents' }] });
  await signIn(page, keygate, 'plans/new');
  await page.getByLabel('Name', { exact: true }).first().fill('pro');
  const limit = page.getByRole('group', { name: 'Limit 1' });
  const meter = limit.getByLabel('Meter');
  await limit.getByLabel('Kind').selectOption('quota');
  const suggested = () => meter.evaluate((input: HTMLInputElement) => [...(input.list?.options ?? [])].map((o) => o.value));
  await expect.poll(suggested).toEqual(['requests', 'bytes_in', 'bytes_out', 'cents']);
  await meter.fill('GPT tokens');
  await expect(meter).toHaveAccessibleDescription(/Meter must have 1 to 32 characters of a-z, 0-9 and _/);
  await meter.fill('tokens');
  await expect(meter).not.toHaveAttribute('aria-invalid');
  await limit.getByLabel('Units').fill('1,000');
  await expect(limit.getByLabel('Units')).toHaveAccessibleDescription('tokens in each window');
  await limit.getByLabel('Counts').selectOption('owner');
  await expect(page.getByRole('status').filter({ hasText: 'per-month' })).toContainText('the tokens of single requests are not kept');
  await page.getByRole('button', { name: 'Create the plan' }).click();
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText('1,000 tokens a month, all keys of an owner together');
  expect((await keygate.call('GET', '/v1/plans?name=pro')).data[0]).toMatchObject({ limits: [{ quota: '1000/month', meter: 'tokens' }] });

  const { owner_id } = await keygate.call('POST', '/v1/owners', { external_id: 'acme', plan: 'pro' });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'acme' });
  expect([await keygate.request('/', key), await keygate.request('/', key)]).toEqual([200, 429]);
  await page.goto(`${keygate.url}owners/${owner_id}`);
  const quota = page.getByRole('list', { name: 'Quotas' }).getByRole('listitem');
  await expect(quota).toContainText('of the plan pro, tokens');
  await expect(quota).toContainText('900 of 1,000');
  await expect(quota.getByRole('meter')).toHaveAttribute('aria-valuetext', '900 of 1,000, tokens');
  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(1);
  await page.goto(`${keygate.url}requests/${(await keygate.call('GET', '/v1/requests')).data[0].request_id}`);
  await expect(page.locator('[data-explanation]')).toContainText(
    'the limit “per-month” of 1,000 tokens a month of the plan “pro” had 100 left, less than the request needed',
  );
});

// Guarantee: before limits are saved, the editor says what they would have refused in the last 24 hours.
test('the editor replays the last 24 hours', async ({ page, keygate, upstream }) => {
  await gateway(keygate, upstream);
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'acme' });
  for (let i = 0; i < 20; i++) await keygate.request('/', key);
  await expect.poll(async () => (await keygate.call('GET', '/v1/reports/top?group_by=key')).data[0]?.requests).toBe(20);
  await signIn(page, keygate, 'plans/new');
  await expect(page.getByText('Give each limit a name and a rate')).toBeVisible();
  await page.getByLabel('Sustained').fill('5/h');
  await page.getByLabel('Counts').selectOption('owner');
  const replay = page.getByRole('status').filter({ hasText: 'per-minute' });
  await expect(replay).toContainText('15 would have been refused');
  await page.getByLabel('Sustained').fill('100/s');
  await expect(replay).toContainText('0 would have been refused');
});

// Guarantee: a plan that is in use is not deleted, and the page says by how many; one that is not is deleted.
test('a plan in use is not deleted', async ({ page, keygate, watch }) => {
  watch.allowed.add(409);
  const plan = await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [] });
  const owner = await keygate.call('POST', '/v1/owners', { external_id: 'acme', plan: 'pro' });
  await signIn(page, keygate, `plans/${plan.plan_id}`);
  await expect(page.getByRole('table', { name: 'Owners' }).getByRole('link', { name: 'acme' })).toBeVisible();
  await page.getByRole('button', { name: 'Delete' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Delete the plan' }).click();
  await expect(dialog.getByRole('alert')).toContainText(/1 owner/);
  await keygate.call('PATCH', `/v1/owners/${owner.owner_id}`, { plan: null });
  await dialog.getByRole('button', { name: 'Delete the plan' }).click();
  await expect(page.getByText('No plans yet')).toBeVisible();
});

// Guarantee: what is typed as a filter becomes one when its values are known, also if they come after it was typed.
test('a filter may be typed before its values are known', async ({ page, keygate }) => {
  await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [] });
  for (const external_id of ['acme', 'globex'])
    await keygate.call('POST', '/v1/owners', { external_id, ...(external_id === 'acme' && { plan: 'pro' }) });
  await signIn(page, keygate, 'settings');
  let answer = () => {};
  const typed = new Promise<void>((resolve) => (answer = resolve));
  await page.route(/\/v1\/plans(\?|$)/, async (route) => {
    await typed;
    await route.continue();
  });
  await page.goto(`${keygate.url}owners`);
  await page.locator('[data-search]').fill('plan:pro ');
  await expect(page.getByText('No owner matches')).toBeVisible();
  answer();
  await expect(page.getByRole('table', { name: 'Owners' }).getByRole('row')).toHaveCount(2);
});

// Guarantee: every filter of the list of owners changes the request, pages follow each other, the palette finds owners
// and plans, and a key that may only read sees why it cannot change anything.
test('owners are found, and shown to whoever may read', async ({ page, keygate }) => {
  await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [] });
  for (let i = 0; i < 60; i++) await keygate.call('POST', '/v1/owners', { external_id: `customer-${i}`, ...(i % 2 && { plan: 'pro' }) });
  const owner = await keygate.call('POST', '/v1/owners', { external_id: 'acme', name: 'Acme Ltd' });
  await keygate.call('PATCH', `/v1/owners/${owner.owner_id}`, { state: 'suspended' });
  const viewer = await keygate.call('POST', '/v1/keys', { name: 'viewer', level: 'account', scope: 'read' });
  await signIn(page, keygate, 'owners', viewer.key as string);
  const rows = page.getByRole('table', { name: 'Owners' }).getByRole('row');
  await expect(rows).toHaveCount(51);
  await page.getByRole('button', { name: 'Next page' }).click();
  await expect(rows).toHaveCount(12);
  for (const [typed, found] of [
    ['state:suspended ', 1],
    ['plan:pro ', 30],
    ['external_id:customer-7 ', 1],
    ['Acme', 1],
  ] as const) {
    await page.goto(`${keygate.url}owners`);
    await page.locator('[data-search]').fill(typed);
    await page.locator('[data-search]').press('Escape');
    await expect(rows).toHaveCount(found + 1);
  }
  await expect(page.getByRole('button', { name: 'Create an owner' })).toHaveAccessibleDescription(/Your key has the scope “read”/);
  await rows.nth(1).getByRole('link').click();
  for (const name of ['Edit', 'Resume', 'Delete'])
    await expect(page.getByRole('button', { name, exact: true })).toHaveAccessibleDescription(/Your key has the scope “read”/);
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('pro');
  await page.getByRole('option', { name: 'pro', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'pro', level: 1 })).toBeVisible();
});

// Guarantee: the selects of the editor have room for what is chosen.
test('the choices of a limit are not cut off', async ({ page, keygate }) => {
  const { plan_id } = await keygate.call('POST', '/v1/plans', {
    name: 'pro',
    limits: [{ name: 'ever', quota: '5/total', per: 'owner', overage: 'allow' }],
  });
  await signIn(page, keygate, `plans/${plan_id}/edit`);
  const selects = page.getByRole('group', { name: 'Limit 1' }).locator('select');
  await expect(selects).toHaveCount(5);
  for (const width of [360, 900, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    const cut = await selects.evaluateAll((all) =>
      all.flatMap((e) => {
        const free = e.cloneNode(true) as HTMLElement;
        free.style.position = 'absolute';
        free.style.width = 'max-content';
        e.parentElement!.append(free);
        const [needed, has] = [free.getBoundingClientRect().width, e.getBoundingClientRect().width];
        free.remove();
        return needed > has ? [`${e.textContent}: ${needed} > ${has}`] : [];
      }),
    );
    expect.soft(cut, `at ${width} px`).toEqual([]);
  }
});
