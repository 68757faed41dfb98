import { expect, signIn, test } from './keygate';

const live = 'requests?live=1';

// Guarantee: the live list shows at most its bound, says what it skipped while it was paused, and goes on.
test('the live list is bounded, and says what was skipped while it was paused', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url });
  await signIn(page, keygate, live);
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  const send = async (from: number, to: number) => {
    for (let n = from; n < to; n += 10) await Promise.all(Array.from({ length: 10 }, (_, i) => keygate.request(`/missing/${n + i}`)));
  };
  await page.getByRole('button', { name: 'Pause' }).click();
  await send(0, 520);
  // What is skipped, by the server under load or by the page beyond its bound, is counted.
  const waiting = page.getByText(/^\d+ waiting, \d+ skipped$/);
  await expect.poll(async () => ((await waiting.textContent()) ?? '').match(/\d+/g)?.reduce((sum, n) => sum + Number(n), 0)).toBe(520);
  expect(Number(/\d+/.exec((await waiting.textContent()) ?? '')?.[0])).toBeLessThanOrEqual(500);
  const rows = page.getByRole('table', { name: 'Live requests' }).getByRole('row');
  await expect(rows).toHaveCount(0);
  await page.getByRole('button', { name: 'Go on' }).click();
  await expect.poll(() => rows.count()).toBeGreaterThan(200);
  await expect(rows.filter({ hasText: /skipped/ }).first()).toBeVisible();
  // However many were skipped, the newest is shown, and the list fills up to its bound and no further: the line that
  // says what was skipped leaves it like any other.
  let sent = 520;
  const more = async () => {
    await send(sent, (sent += 40));
    await expect(page.getByRole('link', { name: `/missing/${sent - 1}` })).toBeVisible();
  };
  do await more();
  while ((await rows.count()) < 501); // with the heads
  await more();
  await expect(rows).toHaveCount(501);
  await page.getByRole('button', { name: 'Clear' }).click();
  await expect(rows).toHaveCount(0);
});

// Guarantee: the live list goes on after a restart of the server by itself, and shows what came before it was
// connected again.
test('the live list survives a restart of the server', async ({ page, keygate, upstream, watch }) => {
  watch.offline = true;
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url });
  await signIn(page, keygate, live);
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await keygate.request('/first');
  await expect(page.getByRole('link', { name: '/first' })).toBeVisible();
  await keygate.halt();
  await expect(page.getByText('The live list was cut off. It is connecting again.')).toBeVisible();
  await keygate.boot();
  await keygate.request('/second');
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await keygate.request('/third');
  for (const path of ['/first', '/second', '/third']) await expect(page.getByRole('link', { name: path })).toHaveCount(1);
});

// Guarantee: the live list ends with the session, asks for nothing any more, and the next session of another
// account sees none of its lines.
test('the live list ends with the session, and belongs to its account', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url });
  const mine = await keygate.call('POST', '/v1/keys', { name: 'for the browser', scope: 'admin', level: 'account' });
  const other = await keygate.call('POST', '/v1/accounts', { name: 'other', plan: 'starter' });
  await signIn(page, keygate, live, mine.key);
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await keygate.request('/of-default');
  await expect(page.getByRole('link', { name: '/of-default' })).toBeVisible();
  await keygate.call('DELETE', `/v1/keys/${mine.key_id}`);
  await expect(page.getByLabel('Account-level key')).toBeVisible();
  await expect(page.getByText('The session has ended, and the live list with it.')).toBeAttached();
  let asked = 0;
  page.on('request', (r) => {
    if (r.url().includes('/v1/requests')) asked++;
  });
  await page.getByLabel('Account-level key').fill(other.key);
  expect(asked).toBe(0);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  await expect(page.getByRole('link', { name: '/of-default' })).toHaveCount(0);
});
