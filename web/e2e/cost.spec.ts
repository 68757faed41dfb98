import type { Page } from '@playwright/test';
import { accessible, expect, type Keygate, type Service, signIn, test } from './keygate';

const usage = { prompt_tokens: 1000, completion_tokens: 51 };
const tokens = { meter: 'tokens', from: { json: { 'usage.prompt_tokens': 1, 'usage.completion_tokens': 4 } }, reserve: 2000, max: 16000 };

// charged makes a gateway with a route that costs tokens, and a key. /none has no usage in its response.
async function charged(keygate: Keygate, upstream: Service, cost: unknown = [tokens]) {
  upstream.handler = (request, _body, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(request.url === '/none' ? {} : { usage }));
  };
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'models',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  const { route_id } = (await keygate.call('GET', `/v1/gateways/${gateway_id}/routes`)).data[0];
  const path = `/v1/gateways/${gateway_id}/routes/${route_id}`;
  if (cost) await keygate.call('PATCH', path, { cost });
  const { key, key_id } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  return { gateway_id, route_id, path, key: key as string, key_id, page: `gateways/${gateway_id}/routes/${route_id}` };
}

// fits fails if the page is wider than the window.
const fits = async (page: Page) =>
  expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBeLessThanOrEqual(0);

// looked checks a page in both themes and three widths, and takes a picture of each.
async function looked(page: Page, name: string) {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await accessible(page, colorScheme === 'light' ? 'all' : 'colours');
    for (const width of [1280, 768, 390]) {
      await page.setViewportSize({ width, height: 900 });
      await fits(page);
      await page.screenshot({ path: `.shots/${name}-${colorScheme}-${width}.png`, fullPage: true });
    }
    await page.setViewportSize({ width: 1280, height: 800 });
  }
}

// Guarantee: a request that has a cost is found, and its page says what it cost, of each meter, how that came about, and in
// words why it is not known. It is not said to be refused.
test('the page of a request says what it cost', async ({ page, keygate, upstream }) => {
  const { key } = await charged(keygate, upstream, [tokens, { meter: 'requests', from: { request: 20 } }]);
  expect([await keygate.request('/chat', key), await keygate.request('/none', key)]).toEqual([200, 200]);
  await expect.poll(async () => (await keygate.call('GET', '/v1/requests?result=charged')).data.length).toBe(2);
  await signIn(page, keygate, 'requests');
  await expect(page.getByText('Nothing was refused, and nothing failed')).toBeVisible();
  await page.goto(`${keygate.url}requests?result=charged`);
  await expect(page.getByRole('heading', { name: 'Requests that were charged', level: 1 })).toBeVisible();
  await expect(page.getByRole('table')).toContainText('Charged 20 requests, 1,204 tokens');
  await page.getByRole('table').getByRole('link', { name: '/chat' }).first().click();
  await expect(page.locator('[data-explanation]')).toContainText('had the status 200, and was charged 20 requests, 1,204 tokens');
  const cost = page.getByRole('list', { name: 'Cost' }).getByRole('listitem');
  await expect(cost).toHaveCount(2);
  await expect(cost.nth(1)).toContainText('Charged1,204 tokens');
  await expect(cost.nth(1)).toContainText('Reserved2,000 tokens');
  await expect(cost.nth(1)).toContainText(/prompt_tokens 1,000 × 1, .*completion_tokens 51 × 4/);
  await expect(cost.nth(1)).not.toContainText('Unknown because');

  await page.goto(`${keygate.url}requests?result=charged`);
  await page.getByRole('table').getByRole('link', { name: '/none' }).first().click();
  await expect(cost.nth(1)).toContainText('Charged16,000 tokens');
  await expect(cost.nth(1)).toContainText(
    'Unknown becausethe response does not have the field or header, or its Content-Type is not one that is read. The route charges this',
  );
  await looked(page, 'request-cost');
});

// Guarantee: the page of a route shows its cost in words. The editor shows a mistake at once if it is not JSON, and what
// the server says with the field of each mistake; it sends nothing that was not changed; and an empty text removes the cost.
test('the cost of a route is shown, edited and removed', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const route = await charged(keygate, upstream, null);
  const sent: unknown[] = [];
  page.on('request', (r) => {
    if (r.method() === 'PATCH') sent.push(JSON.parse(r.postData() ?? ''));
  });
  await signIn(page, keygate, route.page);
  await expect(page.getByText('Each request costs 1 of the meter requests.', { exact: false })).toBeVisible();
  const dialog = page.getByRole('dialog', { name: 'Cost of the route' });
  const edit = () => page.getByRole('button', { name: 'Edit the cost' }).click();
  const save = dialog.getByRole('button', { name: 'Save' });
  await edit();
  const text = dialog.getByLabel('Cost', { exact: true });
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await text.fill('[{"meter": "tokens",');
  await expect(text).toHaveAccessibleDescription(/This is not valid JSON/);
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await text.fill('[{"meter": "Tokens", "reserve": 5, "from": {"json": {"a..b": 1}}}]');
  await save.click();
  await expect(text).toHaveAccessibleDescription(/(?<!Cost )cost\[0\]\.max is required with header and json/);
  await expect(text).toHaveAccessibleDescription(/cost\[0\]\.meter must have 1 to 32 characters/);
  await expect(text).toHaveAccessibleDescription(/cost\[0\]\.from\.json\.a\.\.b has an empty segment/);
  await expect(text).toBeFocused();
  await accessible(page);
  await dialog.getByRole('button', { name: 'Tokens of an OpenAI-compatible model' }).click();
  sent.length = 0;
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toContainText(
    `${route.route_id} --cost - <<'EOF'\n[\n  {\n    "meter": "tokens"`,
  );
  await page.keyboard.press('Escape');
  await looked(page, 'route-cost-editor');
  await save.click();
  await expect(dialog).toHaveCount(0);
  const cost = page.getByRole('list', { name: 'Costs of the route' });
  await expect(cost).toContainText('the JSON of the response: usage.prompt_tokens × 1 + usage.completion_tokens? × 1');
  await expect(cost).toContainText('Reserve2,000 tokens, taken before forwarding');
  await expect(cost).toContainText('At most16,000 tokens');
  await expect(cost).toContainText('If unknownthe most');
  expect(sent).toEqual([
    { cost: [{ meter: 'tokens', from: { json: { 'usage.prompt_tokens': 1, 'usage.completion_tokens?': 1 } }, reserve: 2000, max: 16000 }] },
  ]);

  await edit();
  await expect(save).toHaveAttribute('aria-disabled', 'true');
  await dialog.getByRole('button', { name: 'Remove the cost' }).click();
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByLabel('As CLI', { exact: true })).toContainText("--cost ''");
  await page.keyboard.press('Escape');
  await save.click();
  await expect(cost).toHaveCount(0);
  expect(await keygate.call('GET', route.path)).toMatchObject({ cost: null });
});

// Guarantee: saving the cost does not disturb a limit that is being typed on the same page, and the limit is saved after it.
test('the cost and the limit of a route are saved one after the other', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(412); // the limit was read before the cost was saved
  const route = await charged(keygate, upstream);
  await signIn(page, keygate, route.page);
  await page.getByLabel('Sustained').fill('7/min');
  await page.getByRole('button', { name: 'Edit the cost' }).click();
  const dialog = page.getByRole('dialog', { name: 'Cost of the route' });
  await dialog.getByLabel('Cost', { exact: true }).fill('[{"meter": "requests", "from": {"request": 20}}]');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('list', { name: 'Costs of the route' })).toContainText('Each request20 requests');
  await expect(page.getByLabel('Sustained')).toHaveValue('7/min');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('The limit was saved')).toBeVisible();
  expect(await keygate.call('GET', route.path)).toMatchObject({
    rate_limit: { sustained: '7/min' },
    cost: [{ meter: 'requests', from: { request: 20 } }],
  });
});

// Guarantee: what requests were charged is shown with the traffic of a route, a key, a gateway and of all; without costs
// nothing is said of it.
test('traffic shows what was charged', async ({ page, keygate, upstream }) => {
  const { gateway_id, key, key_id, path, page: route } = await charged(keygate, upstream, null);
  expect(await keygate.request('/chat', key)).toBe(200);
  await expect.poll(async () => (await keygate.call('GET', '/v1/reports/top?group_by=key')).data[0]?.requests).toBe(1);
  await signIn(page, keygate, route);
  await expect(page.getByText('1 request, 0 refused, 0 failed')).toBeVisible();
  await expect(page.getByText('Charged:')).toHaveCount(0);
  await keygate.call('PATCH', path, { cost: [tokens] });
  expect(await keygate.request('/chat', key)).toBe(200);
  const meters = async () =>
    ((await keygate.call('GET', '/v1/reports/traffic?interval=1m')).data as { meters: Record<string, number> }[]).reduce(
      (n, r) => n + (r.meters.tokens ?? 0),
      0,
    );
  await expect.poll(meters).toBe(1204);
  for (const at of [route, `keys/${key_id}`, `gateways/${gateway_id}`, '']) {
    await page.goto(keygate.url + at);
    await expect(page.getByText('Charged: 1,204 tokens')).toBeVisible();
  }
  await page.goto(keygate.url + route);
  await expect(page.getByText('Charged: 1,204 tokens')).toBeVisible();
  await looked(page, 'route-cost');
  await page.goto(`${keygate.url}keys/${key_id}`);
  await expect(page.getByText('Charged: 1,204 tokens')).toBeVisible();
  await looked(page, 'key-cost');
});
