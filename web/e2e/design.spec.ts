import config from '../playwright.config';
import { expect, type Keygate, type Service, signIn, test } from './keygate';
import { fill, screens, settled } from './screens';

// The browser shows its scrollbars, which it hides in other tests.
test.use({ launchOptions: { ...config.use?.launchOptions, ignoreDefaultArgs: ['--hide-scrollbars'] } });

// broken returns the rules for all screens that the page breaks, with what breaks them. It runs in the page.
function broken(): string[] {
  const found: string[] = [];
  const name = (e: Element) => `${e.nodeName.toLowerCase()} “${(e.textContent ?? '').trim().slice(0, 40)}”`;
  const all = [...document.body.querySelectorAll<HTMLElement>('*')].filter((e) => e.checkVisibility());
  const scrolls = (e: HTMLElement, axis: 'X' | 'Y') =>
    /auto|scroll/.test(getComputedStyle(e)[`overflow${axis}`]) &&
    (axis === 'X' ? e.scrollWidth > e.clientWidth : e.scrollHeight > e.clientHeight);

  // Nothing scrolls up and down within what does. A block of code, and what is typed, may.
  const upright = all.filter((e) => scrolls(e, 'Y') && !e.matches('textarea, pre, [role=listbox]'));
  const page = document.documentElement.scrollHeight > document.documentElement.clientHeight;
  for (const e of upright) {
    if (upright.some((o) => o !== e && o.contains(e)) || (page && !e.closest('dialog')))
      found.push(`scrolls within what scrolls: ${name(e)}`);
  }
  for (const e of all.filter((o) => o.matches('dialog pre') && scrolls(o, 'Y'))) found.push(`scrolls within a dialog: ${name(e)}`);
  // What scrolls can have the focus, so that keys can scroll it. The options of a list box are moved through in its input.
  const focusable = '[tabindex], a[href], button, input, select, textarea, summary';
  for (const e of all.filter((o) => (scrolls(o, 'X') || scrolls(o, 'Y')) && !o.matches('[role=listbox]'))) {
    if (!e.matches(focusable) && !e.querySelector(focusable)) found.push(`scrolls without a focus: ${name(e)}`);
  }
  // Tabs have no scrollbar.
  for (const e of all.filter((o) => o.matches('main nav ul'))) {
    if (e.offsetHeight !== e.clientHeight) found.push(`tabs with a scrollbar: ${name(e)}`);
  }
  // What destroys something is outlined.
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.color = 'var(--bad)';
  const bad = getComputedStyle(probe).color;
  probe.remove();
  for (const e of all.filter(
    (o) => o.matches('button') && /^(Delete|Revoke|Disconnect|Suspend|Abort)\b/.test((o.textContent ?? '').trim()),
  )) {
    const { borderTopColor, color, backgroundColor } = getComputedStyle(e);
    if (borderTopColor !== bad || color !== bad || backgroundColor === bad) found.push(`not outlined: ${name(e)}`);
  }
  // The head of a column is one line, and not cut off.
  for (const e of all.filter((o) => o.matches('th[scope=col]'))) {
    const range = document.createRange();
    range.selectNodeContents(e);
    const lines = new Set([...range.getClientRects()].filter((r) => r.width > 1).map((r) => Math.round(r.top)));
    if (lines.size > 1 || e.scrollWidth > e.clientWidth) found.push(`head of ${lines.size} lines: ${name(e)}`);
  }
  for (const row of all.filter((o) => o.matches('thead tr'))) {
    const tops = [...row.querySelectorAll('th:not(:has(.sr-only))')].flatMap((e) => {
      const range = document.createRange();
      range.selectNodeContents(e);
      const { top, width } = range.getBoundingClientRect();
      return width > 1 ? [Math.round(top)] : [];
    });
    if (new Set(tops).size > 1) found.push(`heads at different heights: ${name(row)}`);
  }
  // A row of a list is a link. Tables of a text, and that of the server's settings, are no lists.
  for (const e of all.filter(
    (o) => o.matches('main table[aria-label]:not([aria-label="Settings of this server"]) tbody tr') && !o.closest('dialog'),
  )) {
    if (e.querySelectorAll('.row-link').length !== 1) found.push(`row without a link of its own: ${name(e)}`);
  }
  return found;
}

// Guarantee: the rules hold on every screen, on a wide, a middle and a narrow page, and the content of all screens has the
// same width in the middle of its room.
test('every screen keeps the rules of all screens', async ({ page, keygate, upstream }) => {
  test.setTimeout(600_000);
  const id = await fill(keygate, upstream);
  await signIn(page, keygate, 'settings');
  for (const [name, path] of screens(id)) {
    await page.setViewportSize({ width: 1920, height: 800 });
    await page.goto(keygate.url + path);
    await settled(page);
    const box = await page.evaluate(() => {
      const main = document.querySelector('main')!.getBoundingClientRect();
      const content = document.querySelector('main > div')!.getBoundingClientRect();
      return [content.width, Math.round(content.left - main.left - (main.right - content.right))];
    });
    expect.soft(box, `width and shift of ${name}`).toEqual([1280, 0]);
    for (const width of [1280, 768, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      expect.soft(await page.evaluate(broken), `${name} at ${width} px`).toEqual([]);
    }
  }
});

// dialogs are the dialogs of the screens, by the button that opens them.
const dialogs = (id: Record<string, string>): [path: string, button: string][] => [
  ['', 'Numbers'],
  [`gateways/${id.gateway}`, 'Delete the gateway'],
  [`gateways/${id.gateway}/routes`, 'Create a route'],
  [`gateways/${id.gateway}/repository`, 'Connect a repository'],
  [`gateways/${id.gateway}/revisions`, 'Read'],
  [`gateways/${id.billing}/canaries/${id.canary}`, 'Promote'],
  [`gateways/${id.billing}/canaries/${id.canary}`, 'Abort'],
  ['keys', 'Create a key'],
  ['keys', 'Check a key'],
  [`keys/${id.key}`, 'Edit'],
  [`keys/${id.key}`, 'Rotate'],
  [`keys/${id.key}`, 'Revoke'],
  ['owners', 'Create an owner'],
  [`owners/${id.owner}`, 'Edit'],
  [`owners/${id.owner}`, 'Grant units'],
  [`owners/${id.owner}`, 'Suspend'],
  [`owners/${id.suspended}`, 'Resume'],
  [`owners/${id.owner}`, 'Delete'],
  [`plans/${id.plan}`, 'Delete'],
  ['settings', 'Change'],
  ['webhooks', 'Create an endpoint'],
  [`webhooks/${id.webhook}`, 'Edit'],
  [`webhooks/${id.webhook}`, 'Test'],
  [`webhooks/${id.webhook}`, 'Delete'],
  ['audit', 'Search or go to'],
];

// Guarantee: dialogs and the sign-in form stand in the middle of the window, whether the page has a scrollbar or not, and
// the rules hold in them too.
test('dialogs and the sign-in form stand in the middle', async ({ page, keygate, upstream }) => {
  test.setTimeout(600_000);
  const shift = (selector: string) =>
    page.evaluate((s) => {
      const { left, right } = document.querySelector(s)!.getBoundingClientRect();
      return Math.abs(left - (window.innerWidth - right));
    }, selector);
  const id = await fill(keygate, upstream);
  await page.goto(keygate.url);
  await expect(page.getByLabel('Account-level key')).toBeVisible();
  expect(await shift('main > div')).toBeLessThanOrEqual(1);
  await signIn(page, keygate);
  for (const [path, button] of dialogs(id)) {
    await page.goto(keygate.url + path);
    await settled(page);
    await page.getByRole('button', { name: button, exact: true }).first().click();
    await expect(page.locator('dialog[open]')).toBeVisible();
    expect.soft(await shift('dialog[open]'), `shift of ${button} on ${path}`).toBeLessThanOrEqual(1);
    expect.soft(await page.evaluate(broken), `${button} on ${path}`).toEqual([]);
    const body = page.locator('dialog[open]');
    if (await body.locator('[type=submit]').count()) await expect.soft(body.locator('[type=submit]')).toBeInViewport({ ratio: 1 });
  }
});

// Guarantee: a click anywhere in a row follows its link, as the keyboard does.
test('a row is a link as a whole', async ({ page, keygate }) => {
  const { key_id } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, 'keys?level=gateway');
  const row = page.getByRole('table', { name: 'Keys' }).getByRole('row').nth(1);
  for (const cell of [1, 3, -1]) {
    await row.getByRole('cell').nth(cell).click({ force: true }); // the link lies over it
    await expect(page).toHaveURL(new RegExp(`keys/${key_id}$`));
    await page.goBack();
  }
  await row.getByRole('link').focus();
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(`keys/${key_id}$`));
});

// Guarantee: what the server says about a field is shown once, at that field, by its label, and the field has the focus.
test('errors of the server are shown once, at their fields', async ({ page, keygate, watch }) => {
  watch.allowed.add(422).add(409);
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  const taken = await keygate.call('POST', '/v1/gateways', { name: 'billing', upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, 'keys?create=1');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name', { exact: true }).fill(' ');
  await dialog.getByLabel('Burst').fill('plenty');
  await dialog.getByRole('button', { name: 'Create the key' }).click();
  await expect(dialog.getByLabel('Burst')).toHaveAccessibleDescription(/“?"plenty" is not a valid rate/);
  await expect(dialog.getByText('plenty')).toHaveCount(1);
  await expect(dialog.getByText('rate_limit')).toHaveCount(0);
  await expect(dialog.locator('[aria-invalid=true]').first()).toBeFocused();

  await page.goto(`${keygate.url}webhooks?create=1`);
  await dialog.getByLabel('URL').fill('http://10.0.0.1');
  await dialog.getByRole('button', { name: 'Create the endpoint' }).click();
  await expect(dialog.getByText('URL must start with https://')).toHaveCount(1);
  await expect(dialog.getByText('must have at least 1 item')).toHaveText('Events must have at least 1 item');
  await expect(dialog.getByRole('alert')).toHaveCount(2);

  await page.goto(`${keygate.url}gateways/${gateway_id}/settings`);
  await page.getByLabel('Name', { exact: true }).fill('billing');
  await page.getByLabel('Timeout', { exact: true }).fill('soon');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('alert')).toHaveCount(1); // the server looks at names after the form of all fields
  await page.getByLabel('Timeout', { exact: true }).fill('5s');
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('alert')).toHaveCount(1);
  await expect(page.getByLabel('Name', { exact: true })).toHaveAccessibleDescription(new RegExp(taken.gateway_id));
  await expect(page.getByLabel('Name', { exact: true })).toBeFocused();
});

// Guarantee: the bar at the end of the settings is slim.
test('the bar of the settings is one line', async ({ page, keygate }) => {
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, `gateways/${gateway_id}/settings`);
  const bar = page.locator('form > div.sticky');
  await expect(bar).toContainText('Nothing is changed.');
  expect((await bar.boundingBox())!.height).toBeLessThanOrEqual(52);
});

test.describe('in another time zone', () => {
  test.use({ timezoneId: 'Asia/Tokyo' });

  // Guarantee: a chart begins with the first request and names its unit, the rate counts from then on, and table and
  // tooltip have the same times in the same zone.
  test('charts begin with the data and name units and zone', async ({ page, keygate, upstream }) => {
    await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url });
    const { key } = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
    const began = Date.now();
    for (let i = 0; i < 1234; i++) await keygate.request('/', key);
    await signIn(page, keygate, '?range=7d');
    await expect(page.getByText('Requests per minute')).toBeVisible(); // not per hour: it began a moment ago
    await expect(page.getByText('Milliseconds to the end of the response, by minute')).toBeVisible();
    const rate = page.locator('dl > div').filter({ hasText: 'Requests' }).locator('dd').last();
    const perSecond = Number.parseFloat((await rate.textContent())!.replace(',', ''));
    await expect(rate).toContainText('per second');
    // The first minute counts from its begin.
    expect(perSecond).toBeGreaterThan(1234 / ((Date.now() - began) / 1000 + 61));
    const chart = page.getByRole('figure', { name: 'Requests' });
    await chart.locator('.u-over').hover();
    const tip = await chart.locator('.u-over > div').filter({ hasText: 'Requests:' }).textContent();
    const shown = /^(\d+ \w+, \d\d:\d\d) GMT\+9\nRequests: /.exec(tip!)![1]!;
    await chart.getByRole('button', { name: 'Numbers' }).click();
    const table = page.getByRole('table', { name: 'Requests: numbers' });
    await expect(table.getByRole('columnheader').first()).toHaveText('Time, GMT+9');
    await expect(table.getByRole('row').filter({ hasText: shown })).toHaveCount(1);
    await expect(
      table
        .getByRole('cell', { name: '1,234', exact: true })
        .or(table.getByRole('cell', { name: /^\d{3}$/ }))
        .first(),
    ).toBeVisible();
    expect(await table.getByRole('row').count()).toBeLessThanOrEqual(1 + 10);
  });
});

// called makes a gateway with a limit, two keys of the same name, and requests that are refused.
async function called(k: Keygate, upstream: Service) {
  const { gateway_id } = await k.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: JSON.stringify({ openapi: '3.1.0', info: { title: 't', version: '1' }, paths: { '/orders': { get: {} } } }),
  });
  const { route_id } = (await k.call('GET', `/v1/gateways/${gateway_id}/routes`)).data[0];
  await k.call('PATCH', `/v1/gateways/${gateway_id}/routes/${route_id}`, { rate_limit: { sustained: '5/min', per: 'key' } });
  const keys = [];
  for (let i = 0; i < 2; i++) keys.push(await k.call('POST', '/v1/keys', { name: 'twin', scope: 'read' }));
  for (const { key } of keys) for (let i = 0; i < 7; i++) await k.request('/orders', key);
  await expect.poll(async () => (await k.call('GET', '/v1/requests?status=429')).data.length).toBeGreaterThan(3);
  return { gateway_id, route_id, keys };
}

// Guarantee: names stand in the place of identifiers, and two of equal name are told apart.
test('names are shown, and twins are told apart', async ({ page, keygate, upstream }) => {
  const { gateway_id, route_id, keys } = await called(keygate, upstream);
  const twins = keys.map((k) => `twin (${k.key_prefix})`);
  await signIn(page, keygate);
  for (const list of ['Top keys', 'Latest changes']) {
    for (const twin of twins) await expect(page.getByRole('table', { name: list }).getByText(twin)).toBeVisible();
  }
  await expect(page.getByRole('table', { name: 'Latest changes' })).not.toContainText(/(key|gw|rt)_[0-9a-z]{26}/);
  await page.goto(`${keygate.url}requests`);
  for (const twin of twins) await expect(page.getByRole('link', { name: twin }).first()).toBeVisible();
  await page.goto(`${keygate.url}gateways/${gateway_id}/routes/${route_id}`);
  for (const twin of twins) await expect(page.getByRole('table', { name: 'Limits in use' }).getByText(twin)).toBeVisible();
  await expect(page.getByRole('navigation', { name: 'Breadcrumb' })).toHaveText('Gateways/orders/Routes/GET /orders');
});

// Guarantee: the page of a refused request says the rate of the limit, and raises it, after it has said what that would
// have refused.
test('a limit is raised where it has refused', async ({ page, keygate, upstream }) => {
  const { gateway_id, route_id } = await called(keygate, upstream);
  await signIn(page, keygate, 'requests?status=429');
  await page.getByRole('table').getByRole('row').nth(1).getByRole('link').first().click();
  await expect(page.locator('[data-explanation]')).toContainText('the limit of 5 per minute for the route /orders was used up');
  await page.getByRole('button', { name: 'Raise this limit' }).click();
  const dialog = page.getByRole('dialog', { name: 'Raise this limit' });
  await expect(dialog).toContainText('The route GET /orders allows each key 5 per minute.');
  await expect(dialog.getByLabel('Sustained')).toHaveValue('10/min');
  await expect(dialog.getByRole('status')).toContainText('0 of 14 requests would have been refused');
  await dialog.getByRole('button', { name: 'Raise the limit' }).click();
  await expect(page.getByText('The limit is 10 per minute now')).toBeVisible();
  const { rate_limit } = await keygate.call('GET', `/v1/gateways/${gateway_id}/routes/${route_id}`);
  expect(rate_limit).toMatchObject({ sustained: '10/min', per: 'key' });
  // The limit that refused it is no longer known, and no other is said to be that.
  await expect(page.locator('[data-explanation]')).toContainText('the limit of 5 requests for the route /orders');
});

// Guarantee: the palette asks the server, so that it finds a gateway among more than a list holds.
test('the palette finds a gateway among many', async ({ page, keygate }) => {
  await keygate.call('POST', '/v1/gateways', { name: 'needle', upstream_url: 'http://127.0.0.1:1' });
  for (let n = 0; n < 101; n++) await keygate.call('POST', '/v1/gateways', { name: `hay ${n}`, upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, 'settings');
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('Needle');
  await page.getByRole('listbox', { name: 'Results' }).getByRole('option', { name: 'needle' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toContainText('needle');
});

// Guarantee: a report that cannot be read is said once, and nothing looks as if it were still being read.
test('the overview says a failed report once', async ({ page, keygate, watch }) => {
  watch.allowed.add(500);
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  await page.route('**/v1/reports/traffic?*', (r) => r.fulfill({ status: 500, json: { error: 'internal', message: 'it broke' } }));
  await signIn(page, keygate);
  await expect(page.getByText('it broke')).toHaveCount(1);
  await expect(page.locator('main .skeleton')).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Try again' })).toHaveCount(1);
});

// Guarantee: a page that does not exist does not call itself the overview.
test('a page that does not exist says so in its title', async ({ page, keygate }) => {
  await signIn(page, keygate, 'no/such/page');
  await expect(page).toHaveTitle('Page not found · Keygate');
  await expect(page.getByRole('navigation', { name: 'Breadcrumb' })).toHaveText('Page not found');
});
