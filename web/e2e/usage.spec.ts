import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { accessible, expect, type Keygate, type Service, signIn, test } from './keygate';
import { settled } from './screens';

const shots = join(import.meta.dirname, '..', '.shots');
mkdirSync(shots, { recursive: true });

// use makes two keys, one of an owner with a plan, and sends requests with them.
async function use(k: Keygate, upstream: Service) {
  const { gateway_id } = await k.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    spec: JSON.stringify({
      openapi: '3.1.0',
      info: { title: 't', version: '1' },
      paths: { '/orders': { get: {} }, '/health': { get: {} } },
    }),
  });
  await k.call('POST', '/v1/plans', { name: 'pro', limits: [{ name: 'per-month', quota: '1000/month', per: 'owner' }] });
  const { owner_id } = await k.call('POST', '/v1/owners', { external_id: 'acme', name: 'Acme Ltd', plan: 'pro' });
  const owned = await k.call('POST', '/v1/keys', { name: 'Mobile app', scope: 'read', owner: 'acme' });
  const other = await k.call('POST', '/v1/keys', { name: 'Smoke tests', scope: 'read' });
  // All in one hour. Wait for the next one at its very end.
  const left = 3_600_000 - (Date.now() % 3_600_000);
  if (left < 10_000) await new Promise((resolve) => setTimeout(resolve, left));
  for (let i = 0; i < 7; i++) expect(await k.request('/orders', owned.key)).toBe(200);
  for (let i = 0; i < 3; i++) expect(await k.request('/health', other.key)).toBe(200);
  return { gateway_id, owner_id, owned, other };
}

const table = (page: Page) => page.getByRole('table', { name: 'Usage records' });
const rows = (page: Page) => table(page).locator('tbody tr');

// stayOpen shows records as open that have become final, as the hour may end during a test. It returns how to read all that
// an export of open records has had.
async function stayOpen(page: Page): Promise<(export_: URL) => Promise<string>> {
  const final = (url: string) => {
    const asked = new URL(url);
    asked.searchParams.delete('state');
    return asked.href;
  };
  await page.route('**/v1/usage-records?*state=open*', async (route) => {
    const response = await route.fetch();
    const open = await response.json(); // first, so that nothing is missed between the two
    const ended = await (await route.fetch({ url: final(route.request().url()) })).json();
    const all = new Map([...ended.data, ...open.data].map((r) => [r.usage_id, { ...r, state: 'open' }]));
    await route.fulfill({ response, json: { ...open, data: [...all.values()] } });
  });
  return async (url) => {
    const texts = [];
    for (const one of [url.href, final(url.href)]) {
      const response = await page.request.get(one);
      expect(response.status()).toBe(200);
      texts.push(await response.text());
    }
    return texts.join('');
  };
}

// looks checks a state of the screen in both themes, and that nothing is wider than the window.
async function looks(page: Page, name: string) {
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    await accessible(page, theme === 'light' ? 'all' : 'colours');
    for (const width of [390, 768, 1440]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      expect.soft(await page.evaluate(() => document.documentElement.scrollWidth), `${name} at ${width} px`).toBeLessThanOrEqual(width);
      await page.screenshot({ path: join(shots, `${name}-${theme}-${width}.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

// Guarantee: what keys have used in this hour is shown while it is open, also to a key that may only read; the pages of the
// owner and of the key lead to it; and the exports have the filters of the screen.
test('what was used is shown, filtered and exported', async ({ page, keygate, upstream }) => {
  const { gateway_id, owner_id, owned, other } = await use(keygate, upstream);
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', scope: 'read', level: 'account' });
  const read = await stayOpen(page);
  await signIn(page, keygate, `owners/${owner_id}`, reader.key);
  await page.getByRole('link', { name: 'Usage records of this owner' }).click();
  await expect(page).toHaveURL(new RegExp(`usage-records\\?owner_id=${owner_id}&since=\\d{4}-\\d\\d-\\d\\dT`));
  await expect(page.getByRole('button', { name: 'Owner: Acme Ltd' })).toBeVisible();
  await expect(page.getByText('seconds after the hour has ended')).toBeVisible();
  await looks(page, 'usage-none');
  await page.getByRole('button', { name: 'Show open hours' }).click();
  await expect(page).toHaveURL(/state=open/);
  await expect(rows(page)).toHaveCount(2); // requests and bytes out
  const requests = rows(page).filter({ hasText: 'prorequests7' });
  await expect(requests).toContainText(`acme${owned.key_prefix}orders GET /orders`);

  await page.goto(`${keygate.url}keys/${other.key_id}`);
  await page.getByRole('link', { name: 'Usage records of this key' }).click();
  await page.getByRole('button', { name: 'Open hours', exact: true }).click();
  await expect(rows(page)).toHaveCount(2);
  await expect(rows(page).first()).toContainText('GET /health');

  // Every filter is typed, is in the link, in the request and in the exports.
  await page.goto(`${keygate.url}usage-records?state=open`);
  await expect(rows(page)).toHaveCount(4);
  await looks(page, 'usage-open');
  const box = page.getByLabel('Filter by owner, key, gateway, meter or time (24h, 7d)');
  for (const [typed, name, value] of [
    ['owner:acme', 'owner_id', owner_id],
    ['key:"Mobile app"', 'key_id', owned.key_id],
    [`gateway:orders`, 'gateway_id', gateway_id],
    ['meter:requests', 'meter', 'requests'],
    ['since:2h', 'since', /^\d{4}-\d\d-\d\dT[\d:]+Z$/],
    ['until:2099-01-01T00:00:00Z', 'until', '2099-01-01T00:00:00Z'],
  ] as [string, string, string | RegExp][]) {
    const asked = page.waitForRequest((r) => r.url().includes('/v1/usage-records?') && new URL(r.url()).searchParams.has(name));
    await box.fill(typed);
    await box.press('Enter');
    const sent = new URL((await asked).url()).searchParams;
    expect(sent.get(name)).toEqual(typeof value === 'string' ? value : expect.stringMatching(value));
    expect(sent.get('state')).toBe('open');
    await expect.poll(() => new URL(page.url()).searchParams.get(name)).toBe(sent.get(name));
  }
  await expect(rows(page)).toHaveCount(1);
  const parts = { CSV: `,acme,${owner_id},${owned.key_id},`, 'JSON Lines': '"units":7,', CloudEvents: '"type":"keygate.usage.v1"' };
  for (const [label, part] of Object.entries(parts)) {
    await page.getByRole('button', { name: 'Export' }).click();
    const link = page.getByRole('list', { name: 'Export' }).getByRole('link', { name: label });
    const href = new URL((await link.getAttribute('href'))!, page.url());
    for (const name of ['owner_id', 'key_id', 'gateway_id', 'meter', 'since', 'until', 'state'])
      expect(href.searchParams.has(name)).toBe(true);
    const text = await read(href);
    expect(text).toContain(part);
    expect(text).not.toContain('bytes_out');
    await page.keyboard.press('Escape');
  }

  // A text that names no owner, and one that names no key, are said to.
  await page.goto(`${keygate.url}usage-records?owner_id=nobody`);
  await expect(page.getByRole('paragraph').filter({ hasText: 'No owner has “nobody” in its name or identifier.' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Export' })).toHaveAttribute('aria-disabled', 'true');
  await page.goto(`${keygate.url}usage-records?key_id=nothing`);
  await expect(page.getByRole('paragraph').filter({ hasText: 'No key has “nothing” in its name or begins with it.' })).toBeVisible();
  await page.goto(`${keygate.url}usage-records?meter=tokens`);
  await page.getByRole('button', { name: 'Clear the filters' }).click();
  await expect(page).toHaveURL(/usage-records$/);
  await page.getByRole('button', { name: 'Days' }).click();
  await expect(page.getByText('Hours become days after 35 days.')).toBeVisible();
});

// record is a final usage record, with some fields of its own.
const record = (n: number, own: object = {}) => ({
  usage_id: n.toString(16).padStart(64, 'c0ffee'),
  sequence: 1,
  period_start: '2026-11-28T17:00:00Z',
  period_end: '2026-11-28T18:00:00Z',
  owner: 'acme',
  owner_id: 'own_01jz8y5c3te9b8r2m6q4v7x0aa',
  key_id: 'key_01jz8y5c3te9b8r2m6q4v7x0dd',
  key_prefix: 'kg_4tQx9Z',
  plan: 'pro',
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  route_id: null,
  meter: 'requests',
  units: 4120 + n,
  requests: 4120 + n,
  state: 'final',
  ...own,
});

// Guarantee: final records are read page by page with the keyboard alone, and one opens with all that it has.
test('final records are read by the keyboard', async ({ page, keygate, watch }) => {
  watch.allowed.add(404); // the records name an owner, a key and a gateway that do not exist
  await page.route('**/v1/usage-records?*', (route) => {
    const asked = new URL(route.request().url()).searchParams;
    const data = asked.get('cursor')
      ? [record(60)]
      : [
          record(1, { owner: `long-${'x'.repeat(240)}`, plan: 'enterprise-with-a-long-name' }),
          record(2, { owner: null, owner_id: null, plan: null, sequence: 2, units: 3, requests: 3 }),
          record(3, { meter: 'bytes_out', units: 1_610_612_736, requests: 12 }),
          ...Array.from({ length: 20 }, (_, i) => record(4 + i)),
        ];
    return route.fulfill({ json: { data, next_cursor: asked.get('cursor') ? null : 'next' } });
  });
  await signIn(page, keygate, 'usage-records');
  await expect(rows(page)).toHaveCount(23);
  await expect(rows(page).nth(1)).toContainText('sequence #2');
  await expect(rows(page).nth(2)).toContainText('1.5 GiB');
  await looks(page, 'usage-final');

  await rows(page).first().getByRole('button').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText(record(2).usage_id);
  await expect(dialog).toContainText('2: counted after an earlier record of this period was final');
  await expect(dialog.getByRole('button', { name: `Copy ${record(2).usage_id}` })).toBeVisible();
  expect(await dialog.evaluate((d) => d.scrollWidth <= d.clientWidth)).toBe(true);
  await looks(page, 'usage-record');
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await expect(rows(page).nth(1).getByRole('button')).toBeFocused();

  await page.getByRole('button', { name: 'Export' }).focus();
  await page.keyboard.press('ArrowDown');
  await expect(page.getByRole('link', { name: 'CSV' })).toBeFocused();
  await page.keyboard.press('ArrowUp');
  await expect(page.getByRole('link', { name: 'CloudEvents' })).toBeFocused();
  await looks(page, 'usage-export');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('button', { name: 'Export' })).toBeFocused();
  await expect(page.getByRole('list', { name: 'Export' })).toHaveCount(0);

  await page.getByRole('button', { name: 'Next page' }).focus();
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/cursor=next/);
  await expect(rows(page)).toHaveCount(1);
  await page.keyboard.press('g');
  await page.keyboard.press('u'); // the screen of the menu begins a day ago
  await expect(page).toHaveURL(/usage-records\?since=\d{4}-\d\d-\d\dT/);
});

// Guarantee: a list that cannot be read says so, and is read again.
test('a failed list of usage records says so', async ({ page, keygate, watch }) => {
  watch.allowed.add(403);
  await page.route('**/v1/usage-records?*', (r) =>
    r.fulfill({ status: 403, json: { error: 'scope_insufficient', message: 'not allowed' } }),
  );
  await signIn(page, keygate, 'usage-records');
  await expect(page.getByRole('alert')).toContainText('not allowed');
  await page.unroute('**/v1/usage-records?*');
  await page.getByRole('button', { name: 'Try again' }).click();
  await expect(page.getByText('No usage record is final yet')).toBeVisible();
});

// Guarantee: the page of an owner shows what its keys together have used of a meter over time, by hour and by day; the meter and
// the time are in the URL; and where there are too many records to add up, it says so and leads to them.
test('what an owner used over time', async ({ page, keygate, upstream }) => {
  const { owner_id } = await use(keygate, upstream);
  const second = await keygate.call('POST', '/v1/keys', { name: 'Batch', scope: 'read', owner: 'acme' });
  for (let i = 0; i < 2; i++) expect(await keygate.request('/health', second.key)).toBe(200);
  await stayOpen(page);
  await signIn(page, keygate, `owners/${owner_id}`);
  const panel = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Usage over time' }) });
  await expect(panel.locator('dd').first()).toHaveText('9');
  await panel.getByRole('button', { name: 'Numbers' }).click();
  const numbers = page.getByRole('table', { name: 'Usage of requests: numbers' });
  await expect(numbers.locator('tbody tr')).toHaveCount(24);
  await expect(numbers.locator('tbody tr td:last-child').filter({ hasText: /^9$/ })).toHaveCount(1);
  await page.keyboard.press('Escape');
  await looks(page, 'owner-usage');
  await panel.getByLabel('Meter').selectOption('bytes_out');
  await panel.getByRole('button', { name: '30 days' }).click();
  await expect(page).toHaveURL(/meter=bytes_out&span=30d/);
  await expect(panel.getByText('Bytes out by day (UTC)')).toBeVisible();
  await expect(panel.locator('dd').nth(1)).toHaveText('9'); // requests that used some
  await page.reload();
  await expect(panel.getByLabel('Meter')).toHaveValue('bytes_out');
  await page.route('**/v1/usage-records?*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), next_cursor: 'more' } });
  });
  await page.route('**/v1/usage-records?*cursor=more*', (route) => route.fulfill({ json: { data: [], next_cursor: 'more' } }));
  await page.reload();
  await expect(panel.getByText('There are too many usage records to draw')).toBeVisible();
  await page.unrouteAll({ behavior: 'wait' });
  await panel.getByRole('link', { name: 'usage records' }).click();
  await expect(page).toHaveURL(new RegExp(`usage-records\\?owner_id=${owner_id}&meter=bytes_out`));
});
