import type { Page } from '@playwright/test';
import { accessible, expect, type Keygate, Service, signIn, test } from './keygate';
import { overflowing, settled, shot } from './screens';

// gateway makes a gateway with two routes and a second upstream. With a file, its routes come from one.
async function gateway(keygate: Keygate, upstream: Service, file = false) {
  const routes = ['/a', '/b'];
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: file ? 'orders-file' : 'orders',
    upstream_url: upstream.url,
    ...(file && { config: `routes: [${routes.map((path) => `{path: ${path}, methods: [GET]}`).join(', ')}]` }),
  });
  const path = `/v1/gateways/${gateway_id}`;
  if (!file) for (const route of routes) await keygate.call('POST', `${path}/routes`, { path: route, methods: ['GET'] });
  await keygate.call('PUT', `${path}/upstreams/next`, { targets: [{ url: upstream.url }] });
  return { gateway_id: gateway_id as string, path };
}

const main = (page: Page) => page.getByRole('main');

// act does something with the canary of the page, and confirms it.
async function act(page: Page, name: string) {
  await main(page).getByRole('button', { name, exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: `${name} the canary` }).click();
  await expect(dialog).toHaveCount(0);
}

// Guarantee: a canary is started from the page of the gateway, errors stand at their fields, and it is paused, resumed and aborted
// there; the way of a request and the routes say what it does. A gateway with one upstream sees nothing of canaries.
test('a canary is started, paused, resumed and aborted', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422).add(409);
  const { gateway_id, path } = await gateway(keygate, upstream);
  const plain = await keygate.call('POST', '/v1/gateways', { name: 'plain', upstream_url: upstream.url });
  await signIn(page, keygate, `gateways/${plain.gateway_id}`);
  const tabs = page.getByRole('navigation', { name: 'Pages of the gateway' });
  await settled(page);
  await expect(tabs.getByRole('link', { name: 'Canaries' })).toHaveCount(0);
  await page.goto(`${keygate.url}gateways/${plain.gateway_id}/canaries`);
  await expect(page.getByRole('button', { name: 'Start a canary' })).toHaveAccessibleDescription(/one upstream/);
  await expect(main(page).getByRole('link', { name: 'Add an upstream' })).toBeVisible();

  await page.goto(`${keygate.url}gateways/${gateway_id}`);
  await tabs.getByRole('link', { name: 'Canaries' }).click();
  await expect(main(page)).toContainText('No canaries');
  await accessible(page);
  await page.getByRole('button', { name: 'Start a canary' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Upstream')).toHaveValue('next');
  await expect(dialog.getByLabel('Length of a step')).toHaveAccessibleDescription(/at least 40 min/);
  const start = dialog.getByRole('button', { name: 'Start the canary' });
  const wrong = async (label: string, value: string, says: RegExp, right: string) => {
    const field = dialog.getByLabel(label, { exact: true });
    await field.fill(value);
    await start.click();
    await expect(field).toHaveAttribute('aria-invalid', 'true');
    await expect(field).toHaveAccessibleDescription(says);
    await expect(field).toBeFocused();
    await field.fill(right);
  };
  await wrong('Steps', '5, 1', /Step 2 must be more than the step before it/, '5, 50');
  await wrong('Steps', '5, 100', /Step 2 must be .*less than 100/, '5, 50');
  await wrong('Length of a step', '5s', /Length of a step must be a duration of 1m to 24h/, '10m');
  await wrong('Requests of each side', '0', /Requests of each side must be/, '10');
  await wrong('More errors', '', /must have errors or latency/, '101');
  await wrong('More errors', '101', /More errors must be/, '2');
  await wrong('Slower', '1', /Slower must be/, '');
  await dialog.getByLabel('Upstream').selectOption('default');
  await start.click();
  await expect(dialog.getByLabel('Routes', { exact: true })).toHaveAccessibleDescription(/no route whose requests go to another upstream/);
  await dialog.getByLabel('Upstream').selectOption('next');
  await dialog.getByLabel('Routes', { exact: true }).selectOption('some');
  await start.click();
  await expect(dialog.getByLabel('Routes', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('GET /b').check();
  await accessible(page);
  const { data } = await keygate.call('GET', `${path}/routes`);
  const { route_id } = (data as { path: string; route_id: string }[]).find((r) => r.path === '/b')!;
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toContainText(`--upstream next --route ${route_id} --steps 5,50`);
  await page.keyboard.press('Escape');
  await start.click();

  await expect(page.getByRole('heading', { level: 2, name: 'Canary of next' })).toBeVisible();
  await expect(dialog).toHaveCount(0);
  await expect(main(page).getByText('Running', { exact: true })).toBeVisible();
  await expect(main(page)).toContainText('fewer than 5 say little'); // a warning: nobody has called in the last hour
  await expect(main(page)).toContainText(/failed on next|callers go to next/); // the last decision, as soon as there is one
  await expect(page.getByRole('list', { name: 'Course' }).locator('[aria-current=step]')).toHaveText('5 %');
  await expect(main(page).getByRole('link', { name: 'GET /b' })).toBeVisible();
  await expect(page).toHaveTitle(/Canary of next/);
  await settled(page);
  await accessible(page);
  const canary = (await keygate.call('GET', `${path}/canaries`)).data[0] as Record<string, unknown>;
  expect(canary).toMatchObject({
    steps: [5, 50],
    routes: [route_id],
    min_requests: 10,
    abort: { errors: { more_than: 2 }, latency: null },
  });
  const state = async () => (await keygate.call('GET', `${path}/canaries/${canary.canary_id as string}`)).state as string;

  await main(page).getByRole('button', { name: 'Pause', exact: true }).click();
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toHaveText(
    `keygate canary pause --gateway ${gateway_id} ${canary.canary_id as string}`,
  );
  await page.keyboard.press('Escape');
  await dialog.getByRole('button', { name: 'Pause the canary' }).click();
  await expect(main(page).getByText('Paused', { exact: true })).toBeVisible();
  expect(await state()).toBe('paused');
  await act(page, 'Resume');
  await expect(main(page).getByText('Running', { exact: true })).toBeVisible();

  await page.goto(`${keygate.url}gateways/${gateway_id}`);
  const way = page.getByRole('list', { name: 'The way of a request' });
  await expect(way).toContainText('A canary sends 5 % of the callers to next');
  await page.goto(`${keygate.url}gateways/${gateway_id}/routes/${route_id}`);
  await expect(main(page)).toContainText('it decides where requests to this route go');
  await page.getByRole('button', { name: 'Change the split' }).click();
  await dialog.getByLabel('Which split').selectOption('own');
  await dialog.getByLabel('Split', { exact: true }).fill('next=10%');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByRole('alert')).toContainText('promote or abort it before you give a split');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.goto(`${keygate.url}gateways/${gateway_id}/upstreams/next`);
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await dialog.getByRole('button', { name: 'Delete the upstream' }).click();
  await expect(dialog.getByRole('alert')).toContainText('canary');
  await dialog.getByRole('button', { name: 'Cancel' }).click();

  // A change of its routes by another session pauses it, and the page says so by itself.
  await way.or(tabs).getByRole('link', { name: 'Canaries' }).click();
  await expect(page.getByRole('button', { name: 'Start a canary' })).toHaveAccessibleDescription(/has not ended/);
  await page.getByRole('table', { name: 'Canaries' }).getByRole('link', { name: 'next' }).click();
  await expect(main(page).getByText('Running', { exact: true })).toBeVisible();
  await keygate.call('PATCH', `${path}/upstreams/next`, { timeout: '7s' });
  await expect(main(page).getByText('Paused', { exact: true })).toBeVisible();
  await expect(main(page)).toContainText('The upstream next was changed');

  await act(page, 'Abort');
  await expect(main(page).getByText('Aborted', { exact: true })).toBeVisible();
  await expect(main(page)).toContainText('Aborted by hand');
  expect(await state()).toBe('aborted');
  for (const name of ['Pause', 'Resume', 'Promote', 'Abort'])
    await expect(main(page).getByRole('button', { name, exact: true })).toHaveCount(0);
  await tabs.getByRole('link', { name: 'Overview' }).click();
  await expect(way).toBeVisible();
  await expect(way).not.toContainText('canary');
});

// Guarantee: a canary is promoted; routes of a file are not changed, and the page shows the lines to commit.
test('a canary is promoted', async ({ page, keygate, upstream }) => {
  const { gateway_id, path } = await gateway(keygate, upstream);
  const started = await keygate.call('POST', `${path}/canaries`, { upstream: 'next' });
  await signIn(page, keygate, `gateways/${gateway_id}/canaries/${started.canary_id}`);
  await act(page, 'Promote');
  await expect(main(page).getByText('Promoted', { exact: true }).first()).toBeVisible();
  expect(((await keygate.call('GET', `${path}/routes`)).data as { upstream: string }[]).map((r) => r.upstream)).toEqual(['next', 'next']);

  const other = await gateway(keygate, upstream, true);
  const held = await keygate.call('POST', `${other.path}/canaries`, { upstream: 'next' });
  await page.goto(`${keygate.url}gateways/${other.gateway_id}/canaries/${held.canary_id}`);
  await act(page, 'Promote');
  await expect(main(page).getByLabel('Lines to commit', { exact: true })).toContainText('- {path: /b, methods: [GET], upstream: next}');
  await expect(main(page).getByRole('button', { name: 'Promote' })).toHaveAccessibleDescription(/when the lines are pushed/);
  await expect(main(page).getByRole('button', { name: 'Copy: Lines to commit' })).toBeVisible();
  await settled(page);
  await accessible(page);
  await act(page, 'Abort');
  await expect(main(page).getByText('Aborted', { exact: true })).toBeVisible();
});

// Guarantee: a key that may only read sees everything, and why it may change nothing; one without the gateway sees none of it.
test('a key without write is told why', async ({ page, keygate, upstream, watch }) => {
  const { gateway_id, path } = await gateway(keygate, upstream);
  const { canary_id } = await keygate.call('POST', `${path}/canaries`, { upstream: 'next' });
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  const stranger = await keygate.call('POST', '/v1/keys', { name: 'stranger', level: 'account', scope: 'admin:keys' });
  await signIn(page, keygate, `gateways/${gateway_id}/canaries/${canary_id}`, reader.key);
  await expect(main(page).getByText('Running', { exact: true })).toBeVisible();
  for (const name of ['Pause', 'Promote', 'Abort']) {
    await expect(main(page).getByRole('button', { name, exact: true })).toHaveAttribute('aria-disabled', 'true');
    await expect(main(page).getByRole('button', { name, exact: true })).toHaveAccessibleDescription(/needs “write”/);
  }
  await page.goto(`${keygate.url}gateways/${gateway_id}/canaries`);
  await expect(page.getByRole('button', { name: 'Start a canary' })).toHaveAccessibleDescription(/needs “write”/);
  watch.allowed.add(403);
  await page.context().clearCookies();
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, `gateways/${gateway_id}/canaries/${canary_id}`, stranger.key);
  await expect(page.getByRole('alert').first()).toContainText('scope');
  await expect(page.getByText('Canary of next')).toHaveCount(0);
});

const figures = (requests: number, bad: number, p95_ms: number) => ({ requests, bad, p95_ms });

// A canary in its third step, as the server would have it after some time.
const course = {
  steps: [1, 5, 25, 50],
  step: 3,
  weight: 25,
  progress: [
    { next: figures(24, 1, 48.2), other: figures(128_710, 131, 44.1) },
    { next: figures(6_022, 11, 47.9), other: figures(119_204, 118, 44.6) },
    { next: figures(2_290, 41, 71.3), other: figures(7_710, 9, 43.9) },
  ].map((sides, i) => ({ step: i + 1, weight: [1, 5, 25][i], since: new Date(Date.now() - (3 - i) * 600_000).toISOString(), ...sides })),
  abort: { errors: { more_than: 1 }, latency: { p95_ratio: 1.5 } },
  explanation: '41 of 2,290 failed on next (1.8 %), 9 of 7,710 on default (0.1 %)',
};

// Guarantee: both sides of each step stand on one chart, with bounds and limit, and in a table; the screens are accessible in both
// themes and fit every width.
test('both sides are drawn, and the screens fit every width', async ({ page, keygate, upstream, watch }) => {
  const { gateway_id, path } = await gateway(keygate, upstream);
  const { canary_id } = await keygate.call('POST', `${path}/canaries`, { upstream: 'next' });
  await page.route(/\/v1\/.*\/canaries\/can_\w+$/, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), ...course } });
  });
  await signIn(page, keygate, `gateways/${gateway_id}`);
  for (const [at, shown] of [
    ['', 'A canary sends'],
    ['/canaries', 'next'],
    [`/canaries/${canary_id}`, '41 of 2,290 failed'],
  ] as const) {
    await page.setViewportSize({ width: 1400, height: 900 });
    await page.goto(`${keygate.url}gateways/${gateway_id}${at}`);
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme });
      await settled(page);
      await expect(main(page).getByText(shown).filter({ visible: true }).first()).toBeVisible();
      await test.step(`${at}, ${theme}`, () => accessible(page, theme === 'light' ? 'all' : 'colours'));
    }
    for (const width of [1400, 900, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      expect.soft(await overflowing(page), `${at} at ${width} px`).toEqual([]);
      for (const theme of ['dark', 'light'] as const) {
        await page.emulateMedia({ colorScheme: theme });
        await shot(page, `canaries${at.replaceAll(/\/can\w+/g, '-canary')}-${width}-${theme}`);
      }
    }
  }
  const table = page.getByRole('region', { name: 'Figures of the steps' });
  await expect(table.getByRole('row').nth(1)).toContainText('41 (1.8 %)');
  await expect(table.getByRole('row')).toHaveCount(1 + 2 * 3);
  const chart = page.getByRole('figure', { name: 'Bad requests of both sides' });
  await expect(chart.locator('circle')).toHaveCount(3 + 1); // of next, and in the legend
  await expect(chart).toContainText('Aborted if the bounds lie above');
  await expect(chart).toContainText('50 %'); // the axis covers the bounds of the first step, up to 31.2 %
  for (const figure of ['0.91 to 3.1 %', '71.3 ms']) await expect(table.getByText(figure).filter({ visible: true })).toBeVisible(); // at 360 px
  await expect(page.getByRole('figure', { name: 'Latency of both sides' })).toContainText('100 ms');
  watch.check();
});

// Guarantee: the page shows that a canary was aborted by itself, and why, while it is open; everybody is back then.
test('a canary that fails is aborted by itself', async ({ page, keygate, upstream }) => {
  const { gateway_id, path } = await gateway(keygate, upstream);
  const failing = await Service.start();
  failing.handler = (_request, _body, response) => {
    response.statusCode = 500;
    response.end();
  };
  await keygate.call('PATCH', `${path}/upstreams/next`, { targets: [{ url: failing.url }] });
  const { canary_id } = await keygate.call('POST', `${path}/canaries`, { upstream: 'next', steps: [50] });
  await signIn(page, keygate, `gateways/${gateway_id}/canaries/${canary_id}`);
  await expect(main(page).getByText('Running', { exact: true })).toBeVisible();
  // So many that it is no chance that both sides have several.
  const keys: string[] = [];
  for (let i = 0; i < 40; i++) keys.push((await keygate.call('POST', '/v1/keys', { name: `app ${i}`, scope: 'read' })).key as string);
  // Requests of the first seconds do not count: until it is decided whom the canary leaves out.
  await expect
    .poll(async () => {
      for (const key of keys) await keygate.request('/a', key);
      return (await keygate.call('GET', `${path}/canaries/${canary_id}`)).state as string;
    })
    .toBe('aborted');
  await expect(main(page).getByText('Aborted', { exact: true })).toBeVisible();
  await expect(main(page)).toContainText(/failed on next .* points more; allowed 1.0/);
  await expect(page.getByRole('figure', { name: 'Bad requests of both sides' }).locator('circle')).toHaveCount(1 + 1);
  for (const key of keys) expect(await keygate.request('/a', key)).toBe(200);
  await failing.stop();
});
