import { request as rawRequest, type ServerResponse } from 'node:http';
import { expect, Keygate, signIn, test } from './keygate';

// What would run, break out of an attribute, reorder or break a line if it were anything but text.
const markup = '<img src=x onerror="document.title=\'hacked\'"><script>document.title="hacked"</script>rtl "\'`${1}&lt; \u{1F600}';

// A document with a route for every path of one segment, and one of two.
const spec = JSON.stringify({
  openapi: '3.1.0',
  info: { title: 'x', version: '1' },
  paths: { '/{any}': { get: {} }, '/orders/{id}': { get: {} } },
});

// Guarantee: nothing that a caller, an upstream or a receiver controls is anything but text on the screens of
// requests, webhooks, deliveries and events.
test('what others control is only text', async ({ page, upstream, watch }) => {
  watch.allowed.add(404);
  const keygate = await Keygate.start(['--webhook-backoff', '10ms,10ms,10ms,10ms']);
  try {
    const hook = await keygate.call('POST', '/v1/webhooks', {
      url: `${upstream.url}/hook?x=%3Cscript%3Edocument.title=%22hacked%22%3C/script%3E`,
      events: ['key.created', 'gateway.upstream_error'],
    });
    upstream.handler = (_request, _body, response) => {
      response.statusCode = 500;
      response.setHeader('Content-Type', 'text/html');
      response.end(markup.repeat(30));
    };
    const gateway = await keygate.call('POST', '/v1/gateways', {
      name: `Orders ${markup}`.slice(0, 100),
      upstream_url: upstream.url,
      spec,
    });
    const key = await keygate.call('POST', '/v1/keys', { name: markup.slice(0, 100), scope: 'read', owner: '"><b>owner</b>' });
    const path = `/${encodeURIComponent(markup.replaceAll('/', ''))}`;
    const answered = await Promise.all(
      ['GET', 'HEAD'].flatMap((method) =>
        [path, '/<script>document.title="hacked"<br>'].map(
          (p) =>
            new Promise<number>((resolve, reject) => {
              const { hostname, port } = new URL(`http://${keygate.gateway}`);
              const r = rawRequest(
                {
                  hostname,
                  port,
                  path: p,
                  method,
                  headers: {
                    Authorization: `Bearer ${key.key}`,
                    'User-Agent': '<script>document.title="hacked"</script>',
                    Referer: '"><img src=x>',
                  },
                },
                (res) => {
                  res.resume();
                  resolve(res.statusCode ?? 0);
                },
              );
              r.on('error', reject);
              r.end();
            }),
        ),
      ),
    );
    expect(answered).toContain(500);
    await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=failed')).data.length).toBeGreaterThan(1);
    const failed = (await keygate.call('GET', '/v1/webhook-deliveries?state=failed&event_type=key.created')).data[0];
    await expect.poll(async () => (await keygate.call('GET', '/v1/requests')).data.length).toBeGreaterThan(1);
    const logged = (await keygate.call('GET', '/v1/requests')).data as { request_id: string; status: number }[];
    await signIn(page, keygate, 'requests');
    for (const screen of [
      'requests',
      `requests?gateway_id=${gateway.gateway_id}`,
      ...logged.map((r) => `requests/${r.request_id}`),
      'webhooks',
      `webhooks/${hook.webhook_id}`,
      'deliveries',
      `deliveries/${failed.delivery_id}`,
      'events',
      `events/${failed.event_id}`,
      `deliveries?event_id=${encodeURIComponent(markup)}`,
      `requests?key_id=${encodeURIComponent(markup)}`,
    ]) {
      await page.goto(keygate.url + screen);
      await expect(page.locator('main h1')).toBeVisible();
      await expect(page.locator('main [aria-hidden=true].skeleton')).toHaveCount(0);
      expect(await page.locator('main :is(img, script, b[onerror])').count(), screen).toBe(0);
      expect(await page.title(), screen).not.toContain('hacked');
    }
    await page.goto(`${keygate.url}deliveries/${failed.delivery_id}`);
    await expect(page.getByLabel('Response to attempt 5', { exact: true })).toContainText('<script>document.title="hacked"</script>');
  } finally {
    await keygate.stop();
  }
});

// Guarantee: each filter that the API has can be reached in its list, changes the request, and is in the URL.
test('every filter changes the request', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422);
  const gateway = await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const key = await keygate.call('POST', '/v1/keys', { name: 'Mobile app', scope: 'read' });
  const hook = await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/hook`, events: ['key.created'] });
  const route = (await keygate.call('GET', `/v1/gateways/${gateway.gateway_id}/routes`)).data.find(
    (r: { path: string }) => r.path === '/orders/{id}',
  );
  await signIn(page, keygate, 'requests');
  const calls: URLSearchParams[] = [];
  let list = '';
  page.on('request', (r) => {
    const u = new URL(r.url());
    if (u.pathname === list) calls.push(u.searchParams);
  });
  const check = async (screen: string, api: string, typed: [string, string, string | RegExp][]) => {
    for (const [text, name, value] of typed) {
      list = api;
      await page.goto(keygate.url + screen);
      const box = page.locator('[data-search]');
      await box.fill(text);
      await box.press('Enter');
      const matches = (v: string | null) => v !== null && (typeof value === 'string' ? v === value : value.test(v));
      await expect.poll(() => matches(new URL(page.url()).searchParams.get(name)), { message: `${screen} ${text}: the URL` }).toBe(true);
      await expect.poll(() => calls.some((c) => matches(c.get(name))), { message: `${screen} ${text}: the request` }).toBe(true);
      calls.length = 0;
      await page
        .getByRole('button', { name: /^Remove the filter/ })
        .last()
        .click();
      await expect.poll(() => new URL(page.url()).searchParams.get(name), { message: `${screen} ${text}: removed` }).toBeNull();
    }
  };
  await check('requests', '/v1/requests', [
    ['status:429', 'status', '429'],
    ['status:507', 'status', '507'],
    ['result:charged', 'result', 'charged'],
    ['502', 'status', '502'],
    ['gateway:orders', 'gateway_id', gateway.gateway_id],
    [`route_id:${route.route_id}`, 'route_id', route.route_id],
    [`key_id:${key.key_id}`, 'key_id', key.key_id],
    ['key:"mobile app"', 'key_id', key.key_id],
    [`key:${key.key_prefix}`, 'key_id', key.key_id],
    ['since:15m', 'since', /^2\d{3}-.*Z$/],
    ['until:2030-01-01', 'until', '2030-01-01'],
  ]);
  await check(`requests?gateway_id=${gateway.gateway_id}`, '/v1/requests', [['route:/orders/{id}', 'route_id', route.route_id]]);
  await check('requests?live=1', '/v1/requests/stream', [
    ['status:429', 'status', '429'],
    ['result:charged', 'result', 'charged'],
    ['gateway:orders', 'gateway_id', gateway.gateway_id],
    [`key_id:${key.key_id}`, 'key_id', key.key_id],
    [`route_id:${route.route_id}`, 'route_id', route.route_id],
  ]);
  // Typed key by key, with a space in quotes.
  await page.goto(`${keygate.url}requests`);
  await page.locator('[data-search]').pressSequentially('key:"mobile app" ');
  await expect(page).toHaveURL(new RegExp(`key_id=${key.key_id}`));
  await check('deliveries', '/v1/webhook-deliveries', [
    [`webhook_id:${hook.webhook_id}`, 'webhook_id', hook.webhook_id],
    [`endpoint:${upstream.url}/hook`, 'webhook_id', hook.webhook_id],
    ['state:failed', 'state', 'failed'],
    ['retrying', 'state', 'retry_scheduled'],
    ['event:key.created', 'event_type', 'key.created'],
    ['event_id:evt_01jz8y5c3te9b8r2m6q4v7x0jj', 'event_id', 'evt_01jz8y5c3te9b8r2m6q4v7x0jj'],
    ['since:1h', 'since', /Z$/],
    ['until:2030-01-01', 'until', '2030-01-01'],
  ]);
  await check('events', '/v1/events', [
    ['event:key.created', 'type', 'key.created'],
    ['since:7d', 'since', /Z$/],
    ['until:2030-01-01', 'until', '2030-01-01'],
  ]);
  // What is not a filter is refused with the reason, and sends nothing.
  await page.goto(`${keygate.url}deliveries`);
  await page.locator('[data-search]').fill('state:lost');
  await page.locator('[data-search]').press('Enter');
  await expect(page.getByText('State cannot be “lost”.')).toBeVisible();
  await page.goto(`${keygate.url}deliveries?since=banana`);
  await expect(page.getByRole('alert').filter({ hasText: 'since: must be an RFC 3339 time' })).toBeVisible();
});

// Guarantee: everything that failed since a time is redelivered, however much it is, and what becomes of it is shown
// to the end.
test('many failed deliveries are redelivered, with their outcome', async ({ page, upstream }) => {
  const keygate = await Keygate.start(['--webhook-backoff', '1h,1h,1h,1h']);
  try {
    const held: ServerResponse[] = [];
    const answer = (response: ServerResponse, status: number) => {
      response.statusCode = status;
      response.end();
    };
    upstream.handler = (_request, _body, response) => held.push(response);
    const { webhook_id } = await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/hook`, events: ['key.created'] });
    for (let i = 0; i < 130; i++) await keygate.call('POST', '/v1/keys', { name: i === 0 ? 'never' : `key ${i}`, scope: 'read' });
    // What waits at an endpoint fails when it is disabled.
    await keygate.call('PATCH', `/v1/webhooks/${webhook_id}`, { state: 'disabled' });
    for (const response of held) answer(response, 500);
    await expect
      .poll(async () => (await keygate.call('GET', `/v1/webhook-deliveries?webhook_id=${webhook_id}&state=failed&limit=100`)).next_cursor)
      .not.toBeNull();
    await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=pending')).data.length).toBe(0);
    await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=retry_scheduled')).data.length).toBe(0);
    await keygate.call('PATCH', `/v1/webhooks/${webhook_id}`, { state: 'active' });
    upstream.handler = (_request, body, response) => answer(response, body.includes('"name":"never"') ? 500 : 200);
    const before = upstream.requests.length;
    await signIn(page, keygate, `webhooks/${webhook_id}`);
    await page.getByRole('button', { name: 'Redeliver what failed' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog.getByText('130 deliveries created since then failed')).toBeVisible();
    await dialog.getByRole('button', { name: 'Redeliver', exact: true }).click();
    await expect(dialog.getByText('130 new deliveries have begun.')).toBeVisible();
    const number = (name: string) => dialog.locator('dl > div').filter({ hasText: name }).locator('dd');
    await expect(number('Delivered')).toHaveText('129');
    await expect(number('Retrying')).toHaveText('1');
    await expect(dialog.getByRole('progressbar')).toHaveAttribute('value', '129');
    await expect(dialog.getByText('You can close this: the deliveries go on.')).toBeVisible();
    await keygate.call('PATCH', `/v1/webhooks/${webhook_id}`, { state: 'disabled' });
    await expect(number('Failed again')).toHaveText('1');
    await expect(dialog.getByText('1 failed again')).toBeVisible();
    expect(upstream.requests.length - before).toBe(130);
  } finally {
    await keygate.stop();
  }
});

// Guarantee: an event leads to all its deliveries, redeliveries included, and to no others.
test('an event leads to its deliveries', async ({ page, keygate, upstream }) => {
  await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/one`, events: ['key.created'] });
  await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/two`, events: ['key.created'] });
  await keygate.call('POST', '/v1/keys', { name: 'first', scope: 'read' });
  await keygate.call('POST', '/v1/keys', { name: 'second', scope: 'read' });
  await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=delivered')).data.length).toBe(4);
  const [newest] = (await keygate.call('GET', '/v1/webhook-deliveries')).data;
  await keygate.call('POST', `/v1/webhook-deliveries/${newest.delivery_id}/redeliver`);
  await signIn(page, keygate, 'events');
  await expect(page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Webhooks' })).toHaveAttribute(
    'aria-current',
    /.+/,
  );
  await page.goto(`${keygate.url}events/${newest.event_id}`);
  await expect(page.getByRole('table', { name: 'Deliveries of this event' }).getByRole('row')).toHaveCount(4);
  await page.getByRole('link', { name: 'Show them in the log' }).click();
  await expect(page).toHaveURL(new RegExp(`event_id=${newest.event_id}`));
  await expect(page.getByRole('table', { name: 'Deliveries' }).getByRole('row')).toHaveCount(4);
});

// Guarantee: a page of a record that no longer exists says so, and a copied link to a further page of a list works.
test('what is gone, and copied links', async ({ page, context, keygate, upstream, watch }) => {
  watch.allowed.add(404);
  const { webhook_id } = await keygate.call('POST', '/v1/webhooks', { url: `${upstream.url}/one`, events: ['key.created'] });
  for (let i = 0; i < 60; i++) await keygate.call('POST', '/v1/keys', { name: `key ${i}`, scope: 'read' });
  await expect.poll(async () => (await keygate.call('GET', '/v1/webhook-deliveries?state=delivered&limit=60')).data.length).toBe(60);
  await keygate.call('DELETE', `/v1/webhooks/${webhook_id}`);
  const [delivery] = (await keygate.call('GET', '/v1/webhook-deliveries')).data;
  await signIn(page, keygate, `deliveries/${delivery.delivery_id}`);
  await expect(page.getByText(`deleted: ${webhook_id}`)).toBeVisible();
  await expect(page.getByRole('button', { name: 'Redeliver' })).toHaveAttribute('aria-disabled', 'true');
  await page.goto(`${keygate.url}deliveries/dlv_00000000000000000000000000`);
  await expect(page.getByText('This delivery is not kept')).toBeVisible();
  await page.goto(`${keygate.url}events/evt_00000000000000000000000000`);
  await expect(page.getByText('This event is not kept')).toBeVisible();
  await page.goto(`${keygate.url}deliveries`);
  await expect(page.getByRole('row')).toHaveCount(51);
  await page.getByRole('button', { name: 'Next page' }).click();
  await expect(page.getByRole('row')).toHaveCount(11);
  await expect(page.getByRole('button', { name: 'Back' })).toBeVisible();
  const copy = await context.newPage();
  await copy.goto(page.url());
  await expect(copy.getByRole('row')).toHaveCount(11);
  await expect(copy.getByRole('button', { name: 'Back' })).toHaveCount(0);
  await copy.getByRole('button', { name: 'First page' }).click();
  await expect(copy.getByRole('row')).toHaveCount(51);
});

// Guarantee: the explanation of a request can be copied as one sentence, and has no secret, even if the caller put one
// into the path.
test('the explanation is copied as a sentence without secrets', async ({ page, context, keygate, upstream }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: upstream.url, spec });
  const { key, key_prefix } = await keygate.call('POST', '/v1/keys', { name: 'Mobile app', scope: 'read', rate_limit: '1/h' });
  await keygate.request('/orders', key);
  expect(await keygate.request(`/orders/${key}?token=${key}`, key)).toBe(429);
  await signIn(page, keygate, 'requests');
  const row = page.getByRole('row').filter({ hasText: '429' });
  await row.getByRole('button', { name: 'Copy the explanation' }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toMatch(
    /^The request GET \/orders\/.* was refused with status 429 because the limit of 1 request for the key .* \(request req_\w+\)\.$/,
  );
  expect(copied).toContain(key_prefix);
  await row.getByRole('link').first().click();
  await expect(page.locator('[data-explanation]')).toBeVisible();
  expect(await page.content()).not.toContain(key);
  expect(copied).not.toContain(key.slice(10));
});
