import { expect, signIn, test } from './keygate';

// Guarantee: of a plan with a quota that was made in the dashboard, the page of an owner shows what its keys have used; a
// request beyond it is refused and explained; and units that are granted there let requests pass at once.
test('a quota is used up, and units are granted', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  await signIn(page, keygate, 'plans/new');
  await page.getByLabel('Name', { exact: true }).first().fill('pro');
  const limit = page.getByRole('group', { name: 'Limit 1' });
  await limit.getByLabel('Kind').selectOption('quota');
  await limit.getByLabel('Requests').fill('5');
  await limit.getByLabel('Window').selectOption('total');
  await limit.getByLabel('Counts').selectOption('owner');
  await page.getByRole('button', { name: 'Create the plan' }).click();
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText(
    '5 in total, all keys of an owner together; warns at 80 %, 100 %',
  );

  const { owner_id } = await keygate.call('POST', '/v1/owners', { external_id: 'acme', plan: 'pro' });
  const { key, key_id } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'acme' });
  for (const status of [200, 200, 200, 200, 200, 429]) expect(await keygate.request('/', key)).toBe(status);
  await page.goto(`${keygate.url}owners/${owner_id}`);
  const quota = page.getByRole('list', { name: 'Quotas' }).getByRole('listitem');
  await expect(quota).toContainText('5 of 5');
  await expect(quota).toContainText('Used up');
  await expect(quota.getByRole('meter', { name: 'Used of per-month' })).toHaveAttribute('aria-valuenow', '100');

  const course = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Usage over time' }) });
  await course.getByLabel('Meter or quota').selectOption('pro.per-month');
  await expect(page).toHaveURL(/quota=pro.per-month/);
  await expect(course.getByRole('figure', { name: 'Course of pro.per-month' })).toContainText('warns at 80 %');
  await course.getByRole('button', { name: 'Numbers' }).click();
  await expect(page.getByRole('table', { name: 'Course of pro.per-month: numbers' }).locator('tbody tr').last()).toContainText(
    /5\D*4\D*5$/,
  );
  await page.keyboard.press('Escape');
  await page.goto(`${keygate.url}owners`);
  const row = page.getByRole('table', { name: 'Owners' }).getByRole('row').filter({ hasText: 'acme' });
  await expect(row.getByRole('meter', { name: 'Used of per-month' })).toHaveAttribute('aria-valuenow', '100');
  await expect(row).toContainText('100 %');
  await page.goto(`${keygate.url}owners/${owner_id}`);

  await page.getByRole('button', { name: 'Grant units' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Units').fill('2');
  await dialog.getByLabel('Reason').fill('Outage');
  await dialog.getByRole('button', { name: 'Grant the units' }).click();
  await expect(quota).toContainText('5 of 7');
  await expect(page.getByRole('list', { name: 'Grants' })).toContainText('+2 per-month');
  for (const status of [200, 200, 429]) expect(await keygate.request('/', key)).toBe(status);
  await expect(quota).toContainText('7 of 7'); // the page reads it again by itself

  await page.goto(`${keygate.url}keys/${key_id}`);
  await expect(page.getByText('No plan has a quota that counts this key.')).toBeVisible();
  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(2);
  await page.goto(`${keygate.url}requests/${(await keygate.call('GET', '/v1/requests')).data[0].request_id}`);
  await expect(page.locator('[data-explanation]')).toContainText(
    'the limit “per-month” of 7 requests in total of the plan “pro” was used up, with 0 left; it never resets',
  );
});

// Guarantee: a quota of bytes is typed with a unit, stored to the byte and shown so again; the page of an owner, an explanation
// and a grant say bytes; and the form says that it cannot be simulated.
test('a quota of bytes', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  upstream.handler = (_request, _body, response) => response.end('x'.repeat(1500));
  await signIn(page, keygate, 'plans/new');
  await page.getByLabel('Name', { exact: true }).first().fill('pro');
  const limit = page.getByRole('group', { name: 'Limit 1' });
  await limit.getByLabel('Kind').selectOption('quota');
  await limit.getByLabel('Meter').fill('bytes_out');
  await expect(limit.getByLabel('Requests')).toHaveCount(0);
  await limit.getByLabel('Bytes').fill('1.2 kB');
  await expect(limit.getByLabel('Bytes')).toHaveAccessibleDescription('1,200 in each window');
  await limit.getByLabel('Window').selectOption('total');
  await limit.getByLabel('Counts').selectOption('owner');
  await expect(page.getByRole('status').filter({ hasText: 'per-month' })).toContainText(
    'cannot be simulated: the bytes out of single requests',
  );
  await page.getByRole('button', { name: 'Create the plan' }).click();
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText(
    '1,200 bytes of responses in total, all keys of an owner together; warns at 80 %, 100 %',
  );
  const plan = async () => (await keygate.call('GET', '/v1/plans?name=pro')).data[0];
  expect(await plan()).toMatchObject({ limits: [{ quota: '1200/total', meter: 'bytes_out', sustained: null }] });

  await page.getByRole('button', { name: 'Edit' }).click();
  await expect(limit.getByLabel('Meter')).toHaveValue('bytes_out');
  await expect(limit.getByLabel('Bytes')).toHaveValue('1,200');
  await expect(page.getByRole('button', { name: 'Save' })).toHaveAttribute('aria-disabled', 'true');
  await limit.getByLabel('Bytes').fill('1 KiB');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('list', { name: 'Limits of the plan' })).toContainText('1 KiB of responses in total');
  expect(await plan()).toMatchObject({ limits: [{ quota: '1024/total', meter: 'bytes_out' }] });

  const { owner_id } = await keygate.call('POST', '/v1/owners', { external_id: 'acme', plan: 'pro' });
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'acme' });
  const used = async () => (await keygate.call('GET', `/v1/owners/${owner_id}/usage`)).data[0].used;
  expect(await keygate.request('/', key)).toBe(200);
  await expect.poll(used).toBe(1500);
  expect(await keygate.request('/', key)).toBe(429);
  await page.goto(`${keygate.url}owners/${owner_id}`);
  const quota = page.getByRole('list', { name: 'Quotas' }).getByRole('listitem');
  await expect(quota).toContainText('of the plan pro, bytes out');
  await expect(quota).toContainText('1.5 KiB of 1.0 KiB');
  await expect(quota).toContainText('476 B beyond the quota');
  await expect(quota.getByTitle('1,500 of 1,024 bytes out')).toBeVisible();

  await page.getByRole('button', { name: 'Grant units' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Bytes').fill('1 MiB');
  await expect(dialog.getByLabel('Bytes')).toHaveAccessibleDescription('1,048,576, added to the total');
  await dialog.getByRole('button', { name: 'Grant the units' }).click();
  await expect(page.getByRole('list', { name: 'Grants' })).toContainText('+1 MiB per-month');
  await expect(quota).toContainText('1.5 KiB of 1.0 MiB');
  expect(await keygate.request('/', key)).toBe(200);

  await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBe(1);
  await page.goto(`${keygate.url}requests/${(await keygate.call('GET', '/v1/requests')).data[0].request_id}`);
  await expect(page.locator('[data-explanation]')).toContainText(
    'the limit “per-month” of 1 KiB of responses in total of the plan “pro” was used up, with 0 left; it never resets',
  );
  await expect(page.getByText('0 of 1 KiB of responses', { exact: true })).toBeVisible();
});

// Guarantee: what is wrong with a quota stands at its field; what was typed for one kind of limit is not lost with the other.
test('a quota is edited', async ({ page, keygate, watch }) => {
  watch.allowed.add(422);
  const plan = await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [{ name: 'q', quota: '1000/day', overage: 'allow' }] });
  await signIn(page, keygate, `plans/${plan.plan_id}/edit`);
  const limit = page.getByRole('group', { name: 'Limit 1' });
  await expect(page.getByRole('button', { name: 'Save' })).toHaveAttribute('aria-disabled', 'true');
  await limit.getByLabel('Kind').selectOption('rate');
  await expect(limit.getByLabel('Requests')).toHaveCount(0);
  await limit.getByLabel('Kind').selectOption('quota');
  await expect(page.getByRole('button', { name: 'Save' })).toHaveAttribute('aria-disabled', 'true');
  await limit.getByLabel('Requests').fill('lots');
  await limit.getByLabel('Warns at').fill('80 %, 500');
  await page.getByLabel('Time zone').fill('Europe/Nowhere');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(limit.getByLabel('Warns at')).toHaveAccessibleDescription(/200/);
  await limit.getByLabel('Warns at').fill('50');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(limit.getByLabel('Requests')).toHaveAccessibleDescription(/must be a count and a window/);
  await expect(page.getByLabel('Time zone')).toHaveAccessibleDescription(/time zone/);
  await limit.getByLabel('Requests').fill('25,000');
  await page.getByLabel('Time zone').fill('Europe/Berlin');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Europe/Berlin, months from the 1st')).toBeVisible();
  expect(await keygate.call('GET', `/v1/plans/${plan.plan_id}`)).toMatchObject({
    time_zone: 'Europe/Berlin',
    limits: [{ quota: '25000/day', overage: 'allow', warn_at: [50] }],
  });
});

// Guarantee: the overview lists whose quotas passed a threshold, the highest of each window, and when, and leads to the owner or the key;
// without any there is no such list.
test('the overview has the thresholds that were passed', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [{ name: 'ever', quota: '5/total', per: 'owner', warn_at: [50, 100] }] });
  await keygate.call('POST', '/v1/plans', { name: 'each', limits: [{ name: 'per-month', quota: '5/month', warn_at: [20] }] });
  const { owner_id } = await keygate.call('POST', '/v1/owners', { external_id: 'acme', plan: 'pro' });
  const owned = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: 'acme' });
  const alone = await keygate.call('POST', '/v1/keys', { name: 'Smoke tests', scope: 'read', plan: 'each' });
  await signIn(page, keygate);
  await expect(page.getByRole('heading', { name: 'Latest changes' })).toBeVisible();
  const list = page.getByRole('table', { name: 'Quotas that passed a threshold' });
  await expect(list).toHaveCount(0);
  for (const status of [200, 200, 200, 200, 200, 429]) expect(await keygate.request('/', owned.key)).toBe(status);
  expect(await keygate.request('/', alone.key)).toBe(200);
  await expect.poll(async () => (await keygate.call('GET', '/v1/events?type=quota.threshold')).data.length).toBe(3);
  await page.reload();
  await expect(list.locator('tbody tr')).toHaveCount(2);
  const ofOwner = list.locator('tbody tr').filter({ hasText: 'acme' });
  await expect(ofOwner).toContainText('pro.ever');
  await expect(ofOwner).toContainText('passed 100 % of 5 requests at ');
  await expect(ofOwner).toContainText('never');
  const ofKey = list.locator('tbody tr').filter({ hasText: 'Smoke tests' });
  await expect(ofKey).toContainText('each.per-month');
  await expect(ofKey).toContainText('passed 20 % of 5 requests at ');
  await expect(ofKey.getByRole('link')).toHaveAttribute('href', `/keys/${alone.key_id}`);
  await ofOwner.getByRole('link').click();
  await expect(page).toHaveURL(`${keygate.url}owners/${owner_id}`);
});
