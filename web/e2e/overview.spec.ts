import { expect, signIn, test } from './keygate';
import { overflowing, settled } from './screens';

// Guarantee: a paused overview reads nothing more, neither in time nor when its window comes to the front; one
// that goes on does.
test('a paused overview reads nothing, also when its window comes to the front', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: '{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/orders":{"get":{}}}}',
  });
  await keygate.call('POST', '/v1/gateways', { name: 'billing', upstream_url: upstream.url }); // so that there is a choice
  const { key } = await keygate.call('POST', '/v1/keys', { name: 'a', scope: 'read' });
  await keygate.request('/orders', key);
  await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/hook`, events: ['key.created'] });
  await page.clock.install();
  await signIn(page, keygate);
  await expect(page.getByRole('heading', { name: 'Latest changes' })).toBeVisible();
  const read: string[] = [];
  page.on('request', (r) => {
    if (r.url().includes('/v1/')) read.push(new URL(r.url()).pathname);
  });
  // The page is looked at again after a minute. A call of the test itself marks the end of what that caused.
  const lookAgain = async () => {
    await page.clock.fastForward(600_000);
    await page.evaluate(() => window.dispatchEvent(new Event('visibilitychange')));
    await page.evaluate(() => fetch('v1/account').then((r) => r.text()));
  };
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.locator('main .skeleton').first().waitFor({ state: 'detached' });
  read.length = 0;
  await lookAgain();
  expect(read.filter((path) => path !== '/v1/account')).toEqual([]);
  await page.getByRole('button', { name: 'Resume' }).click();
  await lookAgain();
  await expect.poll(() => read).toContain('/v1/reports/traffic');
});

// Guarantee: an account with more gateways than a list holds finds each of them in the list, and where one is
// chosen.
test('a gateway is found among many', async ({ page, keygate }) => {
  const first = await keygate.call('POST', '/v1/gateways', { name: 'needle', upstream_url: 'http://127.0.0.1:1' });
  for (let n = 0; n < 101; n++) await keygate.call('POST', '/v1/gateways', { name: `hay ${n}`, upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, 'gateways');
  await page.getByLabel('Search gateways').fill('NEEDLE');
  await expect(page.getByRole('table', { name: 'Gateways' }).getByRole('link')).toHaveText(['needle']);
  await page.getByLabel('Search gateways').fill('no such');
  await page.getByRole('button', { name: 'Clear the search' }).click();
  await expect(page.getByRole('table', { name: 'Gateways' }).getByRole('row')).toHaveCount(51);
  await page.goto(`${keygate.url}keys?create=1`);
  const dialog = page.getByRole('dialog', { name: 'Create a key' });
  await dialog.getByLabel('Name', { exact: true }).fill('for the needle');
  await dialog.getByLabel('Find a gateway').fill('needle');
  await dialog.getByLabel('Gateway', { exact: true }).selectOption('needle');
  await dialog.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByRole('dialog', { name: 'Key “for the needle”' })).toBeVisible();
  const made = (await keygate.call('GET', '/v1/keys?q=needle')).data[0];
  expect(made.gateway_id).toBe(first.gateway_id);
});

// Guarantee: the overview names an endpoint that is down from its first failed attempt on, not only when its
// deliveries are given up.
test('an endpoint that is down is seen before its deliveries are given up', async ({ page, keygate, upstream }) => {
  upstream.handler = (request, _body, response) => {
    response.statusCode = request.url === '/down' ? 503 : 200;
    response.end();
  };
  for (const path of ['/down', '/up']) await keygate.call('POST', '/v1/webhooks', { url: upstream.url + path, events: ['key.created'] });
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url });
  await keygate.call('POST', '/v1/keys', { name: 'a', scope: 'read' });
  await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=retry_scheduled')).data.length).toBe(1);
  await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=delivered')).data.length).toBe(1);
  await signIn(page, keygate);
  const table = page.getByRole('table', { name: 'Failing webhooks' });
  await expect(table.getByRole('row')).toHaveCount(2); // with the head
  await expect(table.getByRole('row').nth(1)).toContainText(`${upstream.url}/down`);
});

// Guarantee: identifiers of owners, which may differ at the end alone, are shown whole on narrow and middle pages.
test('identifiers are whole on narrow pages', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /*, methods: [GET]}]',
  });
  await keygate.call('POST', '/v1/plans', { name: 'pro', limits: [{ name: 'ever', quota: '5/total', per: 'owner', warn_at: [20] }] });
  const ids = ['1', '2'].map((end) => `customer-of-europe-and-the-west-00000000000${end}`);
  const owners: string[] = [];
  for (const id of ids) {
    owners.push((await keygate.call('POST', '/v1/owners', { external_id: id, plan: 'pro' })).owner_id);
    const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read', owner: id });
    expect(await keygate.request('/', key)).toBe(200);
  }
  await expect.poll(async () => (await keygate.call('GET', '/v1/events?type=quota.threshold')).data.length).toBe(2);
  await signIn(page, keygate, 'settings');
  for (const path of ['', 'usage-records?state=open', 'owners', `owners/${owners[1]}`]) {
    await page.goto(keygate.url + path);
    for (const width of [360, 900]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      for (const id of path.includes(owners[1]!) ? ids.slice(1) : ids) {
        const shown = page.locator('main').getByText(id, { exact: true }).filter({ visible: true });
        await expect(shown.first()).toBeVisible();
        const cut = await shown.evaluateAll((all) =>
          all.flatMap((text) => {
            const found: string[] = [];
            for (let e: Element | null = text; e && e.nodeName !== 'MAIN'; e = e.parentElement) {
              if (getComputedStyle(e).overflowX === 'hidden' && e.scrollWidth > e.clientWidth) found.push(e.outerHTML);
            }
            return found;
          }),
        );
        expect.soft(cut, `${path || 'overview'} at ${width} px`).toEqual([]);
      }
      expect.soft(await overflowing(page), `${path || 'overview'} at ${width} px`).toEqual([]);
    }
  }
});
