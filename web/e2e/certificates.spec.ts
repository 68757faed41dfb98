import type { Page } from '@playwright/test';
import { accessible, expect, type Keygate, signIn, test } from './keygate';
import { overflowing, settled, shot } from './screens';

const day = 24 * 3600 * 1000;
const at = (days: number) => new Date(Date.now() + days * day).toISOString();

// certificate returns a record as the API has it.
const certificate = (n: number, hostname: string, more: object) => ({
  certificate_id: `cert_01jz8y5c3te9b8r2m6q4v7x0a${n}`,
  gateway_id: 'gw_01jz8y5c3te9b8r2m6q4v7x0aa',
  hostname,
  state: 'valid',
  not_before: at(-30),
  not_after: at(60),
  renew_at: at(30),
  next_attempt_at: at(30),
  last_error: null,
  created_at: at(-30),
  ...more,
});

const none = { not_before: null, not_after: null, renew_at: null };
const unreachable = (hostname: string) => `${hostname} does not reach this installation at port 443: its A and AAAA records must lead here`;
const long = `${'long-label-'.repeat(5)}x.${'another-label-'.repeat(4)}x.example.com`;

// One certificate in each state that there is.
const every = [
  certificate(1, 'valid.example.com', {}),
  certificate(2, 'renewal.example.com', { last_error: unreachable('renewal.example.com'), next_attempt_at: at(0.01) }),
  certificate(3, 'pending.example.com', { ...none, state: 'pending', next_attempt_at: at(0) }),
  certificate(4, long, { ...none, state: 'failed', last_error: unreachable(long), next_attempt_at: at(0.01) }),
  certificate(5, 'expired.example.com', {
    state: 'expired',
    not_after: at(-1),
    renew_at: at(-30),
    last_error: 'the certificate authority says: too many certificates',
  }),
];

// fake makes the list of certificates one of all states, which an authority would take months to come to, and counts renewals.
async function fake(page: Page, renewed: string[]) {
  await page.route(/\/v1\/certificates(\?|\/|$)/, async (route) => {
    const url = new URL(route.request().url());
    const id = /certificates\/(cert_\w+)\/renew$/.exec(url.pathname)?.[1];
    if (id) {
      renewed.push(id);
      return route.fulfill({ json: every.find((c) => c.certificate_id === id) });
    }
    const q = url.searchParams.get('q') ?? '';
    return route.fulfill({ json: { data: every.filter((c) => c.hostname.includes(q)), next_cursor: null } });
  });
}

const newGateway = (k: Keygate, name: string) =>
  k.call('POST', '/v1/gateways', { name, upstream_url: 'http://127.0.0.1:9', hostname: `${name}.example.com` });

// Guarantee: without certificates, the page says how to get some. A gateway asks for one in its settings; a server without an authority
// refuses that at the field, with what to do.
test('a gateway asks for a certificate', async ({ page, keygate, watch }) => {
  watch.allowed.add(422);
  const { gateway_id } = await newGateway(keygate, 'orders');
  await signIn(page, keygate, 'certificates');
  await expect(page.getByRole('main')).toContainText('No certificates');
  await accessible(page);
  await page.getByRole('link', { name: 'How certificates work' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Certificates by themselves' })).toBeVisible();
  await page.goto(`${keygate.url}gateways/${gateway_id}/settings`);
  const field = page.getByLabel('Certificate by ACME');
  await field.click();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('main')).toContainText('start the server with --acme-email');
  expect(await keygate.call('GET', `/v1/gateways/${gateway_id}`)).toMatchObject({ acme: false });
});

// Guarantee: each state is shown with why, a certificate is found by its hostname, and the next attempt begins after a question; a key that may
// only read sees the same, and the button says what it needs.
test('certificates are seen and renewed', async ({ page, keygate }) => {
  const renewed: string[] = [];
  await signIn(page, keygate, '');
  await fake(page, renewed);
  await page.goto(`${keygate.url}certificates`);
  for (const [hostname, state, why] of [
    ['valid.example.com', 'Valid', ''],
    ['renewal.example.com', 'Renewal fails', 'does not reach this installation'],
    ['pending.example.com', 'Pending', ''],
    [long, 'Failed', 'does not reach this installation'],
    ['expired.example.com', 'Expired', 'too many certificates'],
  ] as const) {
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: hostname }) });
    await expect(row).toContainText(state);
    await expect(row).toContainText(why);
  }
  await page.getByPlaceholder('Search certificates by hostname').fill('pending');
  await expect(page.getByRole('row').filter({ hasText: 'valid.example.com' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Renew' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('pending.example.com');
  await accessible(page);
  await shot(page, 'certificate-renew');
  await dialog.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByText('keygate certificates renew pending.example.com')).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByText('keygate certificates renew pending.example.com')).toHaveCount(0);
  expect(renewed).toEqual([]);
  await dialog.getByRole('button', { name: 'Renew', exact: true }).click();
  await expect(page.getByText('The next attempt begins within some seconds')).toBeVisible();
  expect(renewed).toEqual([every[2]!.certificate_id]);

  const { key } = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  await page.context().clearCookies();
  await page.goto(keygate.url);
  await page.evaluate(() => localStorage.clear());
  await signIn(page, keygate, 'certificates?q=valid', key);
  await expect(page.getByRole('row').filter({ hasText: 'valid.example.com' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Renew' })).toHaveAccessibleDescription(/needs “write”/);
});

// Guarantee: the page of certificates has no problem that axe finds, and nothing is cut off, in both themes and at three widths, with the
// longest texts.
test('certificates in both themes and at three widths', async ({ page, keygate }) => {
  await signIn(page, keygate, '');
  await fake(page, []);
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [360, 768, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      await page.goto(`${keygate.url}certificates`);
      await settled(page);
      await expect(page.getByRole('link', { name: 'valid.example.com' })).toBeVisible();
      expect.soft(await overflowing(page), `at ${width}`).toEqual([]);
      await accessible(page, scheme === 'light' ? 'all' : 'colours');
      await shot(page, `certificates-${width}-${scheme}`);
    }
  }
});
