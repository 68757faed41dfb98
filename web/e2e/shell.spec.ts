import { expect, Keygate, signIn, test } from './keygate';

test('a wrong key is refused, a right one signs in, and signing out ends the session', async ({ page, keygate }) => {
  await page.goto(keygate.url);
  const field = page.getByLabel('Account-level key');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('alert')).toContainText('Enter an account-level key');
  await field.fill('kga_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('alert')).toContainText('key');
  await expect(page.getByRole('navigation', { name: 'Main' })).toHaveCount(0);
  await field.fill(keygate.key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Welcome to Keygate' })).toBeVisible();
  // The key is nowhere in the page or in what the browser keeps.
  const kept = await page.evaluate(
    () => document.documentElement.outerHTML + JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie + location.href,
  );
  expect(kept).not.toContain(keygate.key);
  const cookie = (await page.context().cookies()).find((c) => c.name === 'keygate_session');
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict', path: '/' });
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByLabel('Account-level key')).toBeVisible();
  await page.reload();
  await expect(page.getByLabel('Account-level key')).toBeVisible();
});

test('a session that ends under the page asks for a key, and keeps what was typed', async ({ page, keygate }) => {
  const made = await keygate.call('POST', '/v1/keys', { name: 'mine', level: 'account', scope: 'admin' });
  await signIn(page, keygate, 'keys?create=1', made.key);
  await page.getByLabel('Name', { exact: true }).fill('half typed');
  await keygate.call('DELETE', `/v1/keys/${made.key_id}`);
  await page.getByRole('button', { name: 'Create the key' }).click();
  const over = page.getByRole('dialog', { name: 'Your session has ended' });
  await expect(over).toBeVisible();
  await over.getByLabel('Account-level key').fill(keygate.key);
  await over.getByRole('button', { name: 'Sign in' }).click();
  await expect(over).toHaveCount(0);
  await expect(page.getByLabel('Name', { exact: true })).toHaveValue('half typed');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByRole('dialog', { name: 'Key “half typed”' })).toBeVisible();
});

test('a revoked key ends its open page without a click', async ({ page, keygate }) => {
  const made = await keygate.call('POST', '/v1/keys', { name: 'mine', level: 'account', scope: 'admin' });
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, '?range=15m', made.key);
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  await keygate.call('DELETE', `/v1/keys/${made.key_id}`);
  await expect(page.getByRole('dialog', { name: 'Your session has ended' })).toBeVisible();
});

test('a server that restarts under the page is waited for, and nothing typed is lost', async ({ page, keygate, watch }) => {
  watch.offline = true;
  await signIn(page, keygate, 'keys?create=1');
  await page.getByLabel('Name', { exact: true }).fill('typed before');
  await keygate.halt('SIGKILL');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByText('Keygate does not respond. This page tries again')).toBeVisible();
  await expect(page.getByRole('dialog').getByRole('alert')).toContainText('Nothing was changed that it did not confirm');
  await keygate.boot();
  await expect(page.getByText('Keygate does not respond. This page tries again')).toHaveCount(0);
  await expect(page.getByLabel('Name', { exact: true })).toHaveValue('typed before');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await expect(page.getByRole('dialog', { name: 'Key “typed before”' })).toBeVisible();
  expect((await keygate.call('GET', '/v1/keys?name=typed%20before')).data).toHaveLength(1);
});

test('what a scope forbids is disabled, with the reason', async ({ page, keygate, watch }) => {
  watch.allowed.add(403);
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  const other = await keygate.call('POST', '/v1/keys', { name: 'app', scope: 'read' });
  await signIn(page, keygate, 'keys', reader.key);
  const create = page.getByRole('button', { name: 'Create a key' });
  await expect(create).toHaveAttribute('aria-disabled', 'true');
  await expect(create).toHaveAttribute('title', /scope “read”/);
  await create.click({ force: true });
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await page.goto(`${keygate.url}keys/${other.key_id}`);
  await expect(page.getByRole('button', { name: 'Revoke' })).toHaveAttribute('aria-disabled', 'true');
  // The address that opens the form does not go around it.
  await page.goto(`${keygate.url}keys?create=1`);
  await expect(page.getByRole('table', { name: 'Keys' })).toBeVisible();
  await expect(page.getByRole('dialog')).toHaveCount(0);
});

test('everything works below a path prefix', async ({ page, watch }) => {
  void watch;
  const keygate = await Keygate.start([], '/team/keygate/');
  try {
    const root = `http://${keygate.admin}/`;
    await page.goto(root);
    expect(page.url()).toBe(`${root}team/keygate/`);
    await signIn(page, keygate, 'keys');
    expect((await page.context().cookies()).find((c) => c.name === 'keygate_session')?.path).toBe('/team/keygate');
    await page.getByRole('link', { name: 'Settings' }).click();
    await expect(page).toHaveURL(`${keygate.url}settings`);
    await page.reload();
    await expect(page.getByRole('table', { name: 'Settings of this server' })).toContainText('/team/keygate');
    await page.getByRole('link', { name: 'Keygate: overview' }).click();
    await expect(page.getByRole('heading', { name: 'Welcome to Keygate' })).toBeVisible();
  } finally {
    await keygate.stop();
  }
});

test('the keyboard alone leads through the pages', async ({ page, keygate }) => {
  await keygate.call('POST', '/v1/keys', { name: 'first', scope: 'read' });
  const last = await keygate.call('POST', '/v1/keys', { name: 'second', scope: 'read' });
  await signIn(page, keygate);
  await page.keyboard.press('g');
  await page.keyboard.press('g');
  await expect(page).toHaveURL(/\/gateways$/);
  await page.keyboard.press('g');
  await page.keyboard.press('k');
  await expect(page).toHaveURL(/\/keys$/);
  await expect(page.getByRole('link', { name: 'second' })).toBeVisible();
  await page.keyboard.press('/');
  await expect(page.getByLabel('Search keys by name or prefix')).toBeFocused();
  await page.keyboard.type('sec');
  await expect(page).toHaveURL(/q=sec/);
  await expect(page.getByRole('link', { name: 'first' })).toHaveCount(0);
  await page.getByRole('link', { name: 'second' }).focus();
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(last.key_id));
  await page.keyboard.press('Control+k');
  await expect(page.getByRole('dialog').getByRole('combobox')).toBeFocused();
  await page.keyboard.type('audit');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/audit$/);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keyboard shortcuts' })).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await page.goBack();
  await page.goBack();
  await expect(page).toHaveURL(/q=sec/);
  await expect(page.getByLabel('Search keys by name or prefix')).toHaveValue('sec');
});

test('no other page can frame the dashboard or call with its session', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(403); // the form; the browser says so after the page has its address
  await signIn(page, keygate);
  upstream.handler = (_request, _body, response) => {
    response.setHeader('Content-Type', 'text/html');
    response.end(
      `<iframe src="${keygate.url}"></iframe><form method="post" action="${keygate.url}v1/keys" enctype="text/plain"><input name='{"name":"forged","scope":"admin","x":"' value='"}'><button>Go</button></form>`,
    );
  };
  await page.goto(upstream.url.replace('127.0.0.1', 'localhost'));
  await expect(page.frameLocator('iframe').locator('#root')).toHaveCount(0);
  const before = await keygate.call('GET', '/v1/keys');
  await page.getByRole('button', { name: 'Go' }).click();
  await page.waitForURL(/\/v1\/keys/);
  // From a page of the same site on another port, where the browser sends the cookie all the same.
  const cookie = (await page.context().cookies(keygate.url)).find((c) => c.name === 'keygate_session');
  for (const headers of [{ Origin: upstream.url }, {}, { Origin: `http://${keygate.admin}`, 'Sec-Fetch-Site': 'same-site' }] as Record<
    string,
    string
  >[]) {
    const response = await fetch(`${keygate.url}v1/keys`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/json', Cookie: `keygate_session=${cookie?.value}` },
      body: '{"name":"forged","scope":"admin"}',
    });
    expect(response.status, JSON.stringify(headers)).toBe(403);
  }
  expect((await keygate.call('GET', '/v1/keys')).data).toHaveLength(before.data.length);
  watch.forget(); // the browser says that it refused the frame and the form
});

// Guarantee: a page without a session sends no call that would be refused, and only the one that says how users sign in: the
// console is empty, and the audit log has no record of it.
test('the sign-in form asks the server only how users sign in before a key is given', async ({ page, keygate }) => {
  const calls: string[] = [];
  page.on('request', (r) => {
    if (r.url().includes('/v1/')) calls.push(r.url());
  });
  const said: string[] = [];
  page.on('console', (m) => said.push(m.text()));
  await page.goto(`${keygate.url}keys`);
  await expect(page.getByLabel('Account-level key')).toBeVisible();
  await page.evaluate(() => window.dispatchEvent(new Event('focus')));
  await expect.poll(() => calls).toEqual([`${keygate.url}v1/session/sso/provider`]);
  expect(said).toEqual([]);
  expect((await keygate.call('GET', '/v1/audit-log?outcome=key_invalid')).data).toEqual([]);
});

// Guarantee: a page whose session has ended stays covered whatever is pressed, calls no more, and goes on when another
// page of the browser signs in; signing out there covers it again.
test('an ended session stays covered, is silent, and is shared by the pages of a browser', async ({ page, context, keygate }) => {
  const made = await keygate.call('POST', '/v1/keys', { name: 'mine', level: 'account', scope: 'admin' });
  await keygate.call('POST', '/v1/gateways', { name: 'orders', upstream_url: 'http://127.0.0.1:1' });
  await signIn(page, keygate, '?range=15m', made.key);
  await keygate.call('DELETE', `/v1/keys/${made.key_id}`);
  const ended = page.getByRole('dialog', { name: 'Your session has ended' });
  await expect(ended).toBeVisible();
  await expect(ended.getByRole('button', { name: 'Close' })).toHaveCount(0);
  for (let i = 0; i < 4; i++) await page.keyboard.press('Escape');
  await expect(ended).toBeVisible();
  await ended.getByLabel('Account-level key').fill('typed'); // the rest of the page is not reachable
  const calls: string[] = [];
  page.on('request', (r) => {
    if (r.url().includes('/v1/')) calls.push(r.url());
  });
  await page.evaluate(() => {
    for (const t of [document, window]) t.dispatchEvent(new Event('visibilitychange'));
  });
  expect(
    await page.evaluate(
      () =>
        new Promise((resolve) => {
          requestAnimationFrame(() => resolve(document.hidden));
        }),
    ),
  ).toBe(false);
  expect(calls).toEqual([]);
  const other = await context.newPage();
  await signIn(other, keygate, 'settings');
  await expect(ended).toHaveCount(0);
  await other.getByRole('button', { name: 'Sign out' }).first().click();
  await expect(page.getByLabel('Account-level key')).toBeVisible();
});

// Guarantee: while the server cannot reach its database, the sign-in says so in the server's words, and works again afterwards.
test('a sign-in while the database is away says why it failed', async ({ page, keygate, watch }) => {
  watch.allowed.add(503);
  const message = 'the database cannot be reached, so no key can be checked and nothing can be changed: try again';
  let away = true;
  await page.route('**/v1/session', (r) =>
    away && r.request().method() === 'POST' ? r.fulfill({ status: 503, json: { error: 'unavailable', message } }) : r.continue(),
  );
  await page.goto(keygate.url);
  await page.getByLabel('Account-level key').fill(keygate.key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('alert')).toContainText(message, { ignoreCase: true });
  away = false;
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Welcome to Keygate' })).toBeVisible();
});

// Guarantee: a sign-out that failed says so.
test('a failed sign-out is not shown as a success', async ({ page, keygate, watch }) => {
  watch.allowed.add(500);
  await signIn(page, keygate, 'keys');
  await page.route('**/v1/session', (r) =>
    r.request().method() === 'DELETE' ? r.fulfill({ status: 500, json: { error: 'internal', message: 'broken' } }) : r.continue(),
  );
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByRole('dialog', { name: 'You are still signed in' })).toContainText('broken');
});

// Guarantee: the theme is one, wherever it is chosen.
test('the theme of the menu and of the settings agree', async ({ page, keygate }) => {
  await signIn(page, keygate, 'settings');
  await page.getByRole('button', { name: 'Theme: system. Change to light' }).click();
  await expect(page.getByRole('combobox', { name: 'Theme' })).toHaveValue('light');
  await page.getByRole('combobox', { name: 'Theme' }).selectOption('dark');
  await expect(page.getByRole('button', { name: 'Theme: dark. Change to system' })).toBeVisible();
});

// Guarantee: the opened menu of a narrow page takes the focus, and Esc closes it and gives the focus back.
test('the menu of a narrow page is used by the keyboard', async ({ page, keygate }) => {
  await signIn(page, keygate, 'settings');
  await page.setViewportSize({ width: 390, height: 800 });
  await expect(page.getByRole('button', { name: 'Search or go to' })).toBeVisible();
  await page.getByRole('button', { name: 'Open the menu' }).click();
  await expect(page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Overview', exact: true })).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('button', { name: 'Open the menu' })).toBeFocused();
  await expect(page.getByRole('navigation', { name: 'Main' })).toBeHidden();
  // Where a setting came from is on a narrow page, too.
  await expect(page.getByRole('row').filter({ hasText: 'admin-addr' })).toContainText('from flag');
  expect(await page.getByRole('table').evaluate((t) => t.parentElement!.scrollWidth <= t.parentElement!.clientWidth)).toBe(true);
});

// Guarantee: the palette keeps the chosen result in view, disables what the scope forbids with the reason, and does not
// say that there is nothing before the answer.
test('the palette scrolls to the chosen result and says what a scope forbids', async ({ page, keygate }) => {
  const reader = await keygate.call('POST', '/v1/keys', { name: 'reader', level: 'account', scope: 'read' });
  await signIn(page, keygate, 'keys', reader.key);
  await page.setViewportSize({ width: 640, height: 400 });
  await page.keyboard.press('Control+k');
  const results = page.getByRole('listbox', { name: 'Results' }).getByRole('option');
  await expect(results.first()).toBeVisible();
  for (let i = 1; i < (await results.count()); i++) await page.keyboard.press('ArrowDown');
  await expect(results.last()).toHaveAttribute('aria-selected', 'true');
  await expect(results.last()).toBeInViewport({ ratio: 1 });
  await page.getByRole('dialog').getByRole('combobox').fill('Create a key');
  await expect(results.first()).toHaveAttribute('aria-disabled', 'true');
  await expect(results.first()).toContainText('scope “read”');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toBeVisible();
  await page.route('**/v1/keys?*', (r) =>
    new Promise((resolve) => {
      setTimeout(resolve, 500);
    }).then(() => r.continue()),
  );
  await page.getByRole('dialog').getByRole('combobox').fill('nobody-has-this');
  await expect(page.getByText('Searching…')).toBeVisible();
  await expect(page.getByText('Nothing found')).toBeVisible();
});

// Guarantee: a page that an earlier version of the server gave gets no file of this version. It is loaded again by
// itself when it needs one.
test('a page of another build is loaded again', async ({ page, keygate, watch }) => {
  await signIn(page, keygate);
  watch.allowed.add(404);
  let old = true;
  const answers: number[] = [];
  await page.route('**/assets/*/screens-settings-settings.js', async (route) => {
    const address = route.request().url();
    const response = await route.fetch({ url: old ? address.replace(/assets\/\w+/, 'assets/0123456789abcdef') : address });
    answers.push(response.status());
    await route.fulfill({ response });
  });
  page.on('load', () => {
    old = false;
  });
  await page.getByRole('link', { name: 'Settings' }).click();
  await expect(page.getByRole('table', { name: 'Settings of this server' })).toBeVisible();
  expect([answers[0], answers.at(-1)]).toEqual([404, 200]);
});
