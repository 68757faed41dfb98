import type { Page } from '@playwright/test';
import { accessible, expect, Keygate, signIn, test as base } from './keygate';
import { Provider } from './provider';
import { overflowing, settled, shot } from './screens';

// The role of a user is in the claim groups, if the provider sends it.
const test = base.extend<{ provider: Provider; keygate: Keygate }>({
  // eslint-disable-next-line no-empty-pattern
  provider: async ({}, use) => {
    const p = await Provider.start(['--sso-roles-claim', 'groups', '--sso-role-map', 'platform=admin,ops=editor,dev=viewer']);
    await use(p);
    await p.stop();
  },
  keygate: async ({ provider }, use) => {
    const k = await Keygate.start(provider.flags);
    await provider.knows(k.url);
    await use(k);
    await k.stop();
  },
});
test.use({ ignoreHTTPSErrors: true });

const ada = { sub: 'ada', email: 'ada@example.com', email_verified: true, name: 'Ada Lovelace', groups: ['platform'] };
const eve = { sub: 'eve', email: 'eve@example.com', email_verified: true, name: 'Eve', groups: ['dev'] };

const main = (page: Page) => page.getByRole('navigation', { name: 'Main' });
const through = (page: Page) => page.getByRole('link', { name: 'Continue with 127.0.0.1' });

// enter signs in through the provider.
async function enter(page: Page, k: Keygate, path = '') {
  await page.goto(k.url + path);
  await through(page).click();
  await expect(main(page)).toBeAttached();
}

// newBrowser returns a page with cookies of its own.
async function newBrowser(page: Page): Promise<Page> {
  const context = await page.context().browser()!.newContext({ ignoreHTTPSErrors: true });
  return context.newPage();
}

// Guarantee: the first sign-in with a mapped role creates a user, and comes back to the page where it began; the role says what the
// dashboard lets it do, and no key is needed; signing out ends the session.
test('a first sign-in, with a mapped role', async ({ page, keygate, provider }) => {
  await provider.signsIn(eve);
  await enter(page, keygate, 'keys?state=active');
  await expect(page).toHaveURL(`${keygate.url}keys?state=active`);
  await expect(page.getByRole('button', { name: 'Create a key' }).first()).toHaveAccessibleDescription(/the role “viewer”.*needs “editor”/);
  await page.goto(`${keygate.url}users`);
  await expect(page.getByRole('main')).toContainText('Not allowed');
  await page.goto(`${keygate.url}settings`);
  await expect(page.getByRole('main')).toContainText('Eve');
  await expect(page.getByRole('main')).toContainText('after 2 hours without a call');
  await page.getByRole('main').getByRole('button', { name: 'Sign out' }).click();
  await expect(through(page)).toBeVisible();
  await page.reload();
  await expect(through(page)).toBeVisible();
  const { data } = await keygate.call('GET', '/v1/users');
  expect(data).toEqual([expect.objectContaining({ subject: 'eve', role: 'viewer', invited: false, email: 'eve@example.com' })]);
});

// Guarantee: who has no role reads why, and what the operator can do, and gets no session.
test('a sign-in that is refused says why', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(403);
  await provider.signsIn({ sub: 'x', groups: ['visitors'] });
  await page.goto(keygate.url);
  await through(page).click();
  await expect(page.getByRole('heading', { name: 'Not signed in' })).toBeVisible();
  await expect(page.getByText('--sso-role-map')).toBeVisible();
  await accessible(page);
  await page.getByRole('link', { name: 'Back to Keygate' }).click();
  await expect(through(page)).toBeVisible();
});

// Guarantee: an administrator invites somebody, whose browser the link lets in, once; and the invitation is then gone.
test('an invitation is created, sent, and used', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(422).add(403);
  await provider.signsIn(ada);
  await enter(page, keygate, 'users');
  await page.getByRole('button', { name: 'Invite a user' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Email').fill('new');
  await dialog.getByRole('button', { name: 'Create the invitation' }).click();
  await expect(dialog.getByLabel('Email')).toBeFocused();
  await dialog.getByLabel('Email').fill('new@example.com');
  await dialog.getByLabel('Role').selectOption('editor');
  await dialog.getByRole('button', { name: 'Create the invitation' }).click();
  await expect(dialog).toContainText('The user is invited');
  const link = (await dialog.locator('[data-secret]').textContent()) ?? '';
  expect(link).toMatch(new RegExp(`^${keygate.url}v1/session/sso\\?invitation=[-_A-Za-z0-9]{43}$`));
  await accessible(page);
  await dialog.getByRole('button', { name: 'Done' }).click();
  await dialog.getByRole('button', { name: 'Close without copying' }).click();
  await page.getByRole('link', { name: 'Invitations' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'new@example.com' })).toContainText('Editor');
  const kept = await page.evaluate(() => JSON.stringify([document.documentElement.outerHTML, location.href, localStorage, sessionStorage]));
  expect(kept).not.toContain(link.slice(-43));

  const other = await newBrowser(page);
  await provider.signsIn({ sub: 'stranger', email: 'stranger@example.com', email_verified: true });
  await other.goto(link);
  await expect(other.getByText('the invitation is for another email')).toBeVisible();
  await provider.signsIn({ sub: 'new', email: 'new@example.com', email_verified: true, name: 'Newton' });
  await other.goto(link);
  await expect(main(other)).toBeAttached();
  await other.goto(`${keygate.url}settings`);
  await expect(other.getByRole('main')).toContainText('Newton');
  await other.goto(link);
  await expect(main(other)).toBeAttached(); // a known user needs none
  await other.context().close();
  await page.reload();
  await expect(page.getByRole('main')).toContainText('No invitations');
  await page.getByRole('link', { name: 'Users', exact: true }).last().click();
  await expect(page.getByRole('row').filter({ hasText: 'Newton' })).toContainText('Editor');
});

// Guarantee: an invitation that is deleted lets nobody in.
test('an invitation is deleted', async ({ page, keygate, provider }) => {
  const { link } = await keygate.call('POST', '/v1/users/invitations', { email: 'new@example.com', role: 'admin' });
  await provider.signsIn(ada);
  await enter(page, keygate, 'users/invitations');
  await page.getByRole('row').filter({ hasText: 'new@example.com' }).getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete the invitation' }).click();
  await expect(page.getByRole('main')).toContainText('No invitations');
  const other = await newBrowser(page);
  await provider.signsIn({ sub: 'new', email: 'new@example.com', email_verified: true });
  await other.goto(link as string);
  await expect(other.getByText('the invitation is not valid')).toBeVisible();
  await other.context().close();
});

// Guarantee: a page that is open when its user is demoted shows what the new role may; when the user is suspended it asks to sign in,
// and the provider's sign-in is refused until the user is resumed; a user who is deleted is gone.
test('demotion, suspension and deletion under an open page', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(403);
  const admin = await newBrowser(page);
  await provider.signsIn(ada);
  await enter(admin, keygate);
  await provider.signsIn({ ...eve, groups: ['ops'] });
  await enter(page, keygate, 'keys');
  const create = page.getByRole('button', { name: 'Create a key' }).first();
  await expect(create).toBeEnabled();

  await admin.goto(`${keygate.url}users`);
  await admin.getByRole('link', { name: 'Eve' }).click();
  await admin.getByRole('button', { name: 'Change the role' }).click();
  await admin.getByRole('dialog').getByLabel('Role').selectOption('viewer');
  await admin.getByRole('dialog').getByRole('button', { name: 'Change the role' }).click();
  await expect(admin.getByText('The role of “Eve” is changed')).toBeVisible();
  await page.reload();
  await expect(create).toHaveAccessibleDescription(/the role “viewer”/);

  await admin.getByRole('button', { name: 'Suspend' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Suspend the user' }).click();
  await expect(admin.getByText('User “Eve” is suspended')).toBeVisible();
  await page.getByRole('link', { name: 'Gateways' }).click(); // without loading the page again
  await expect(through(page)).toBeVisible();
  await through(page).click();
  await expect(page.getByText('the user is suspended')).toBeVisible();

  await admin.getByRole('button', { name: 'Resume' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Resume the user' }).click();
  await expect(admin.getByText('User “Eve” is active again')).toBeVisible();
  await enter(page, keygate);
  await admin.getByRole('button', { name: 'Delete' }).click();
  await admin.getByRole('dialog').getByRole('button', { name: 'Delete the user' }).click();
  await expect(admin.getByText('User “Eve” is deleted')).toBeVisible();
  await expect(admin.getByRole('row').filter({ hasText: 'Eve' })).toHaveCount(0);
  await page.goto(keygate.url);
  await expect(through(page)).toBeVisible();
  await admin.context().close();
});

// Guarantee: a change that needs a user who has authenticated lately asks for that, goes to the provider and comes back to the page,
// where the change then succeeds.
test('a change asks to sign in once more', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(403);
  await provider.signsIn(eve);
  const other = await newBrowser(page);
  await enter(other, keygate);
  await other.context().close();
  // The provider says that it has authenticated ada an hour ago.
  await provider.signsIn({ ...ada, auth_time: Math.floor(Date.now() / 1000) - 3600 });
  await enter(page, keygate, 'users');
  await page.getByRole('link', { name: 'Eve' }).click();
  await page.getByRole('button', { name: 'Suspend' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Suspend the user' }).click();
  await expect(dialog.getByRole('alert')).toContainText('you signed in longer than 5 minutes ago');
  await accessible(page);
  await provider.signsIn(ada);
  await dialog.getByRole('link', { name: 'Sign in once more' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toContainText('Eve');
  await page.getByRole('button', { name: 'Suspend' }).click();
  await dialog.getByRole('button', { name: 'Suspend the user' }).click();
  await expect(page.getByText('User “Eve” is suspended')).toBeVisible();
});

// Guarantee: the last administrator cannot demote, suspend or delete itself, and reads why.
test('the last administrator stays', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(409);
  await provider.signsIn(ada);
  await enter(page, keygate, 'users');
  await page.getByRole('link', { name: 'Ada Lovelace' }).click();
  await page.getByRole('button', { name: 'Suspend' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend the user' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).toContainText('last active user with the role admin');
});

// Guarantee: a server without a provider has no button for it, and the screen of users says how to set one up.
base('users without an identity provider', async ({ page, keygate }) => {
  await page.goto(keygate.url);
  await expect(page.getByRole('button', { name: 'Sign in' })).toBeVisible();
  await expect(page.getByRole('link', { name: /Continue with/ })).toHaveCount(0);
  await signIn(page, keygate, 'users');
  await expect(page.getByRole('button', { name: 'Invite a user' })).toHaveAccessibleDescription(/no --sso-issuer/);
  await page.getByRole('link', { name: 'Set it up' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Single sign-on' })).toBeVisible();
});

// Guarantee: the screens of users have no problem that axe finds, and nothing is cut off, in both themes and at three widths, with the
// longest texts.
test('users in both themes and at three widths', async ({ page, keygate, provider }) => {
  test.setTimeout(900_000);
  const long = 'x'.repeat(200);
  const other = await newBrowser(page);
  await provider.signsIn({
    sub: long,
    email: `${'y'.repeat(60)}@${'z'.repeat(60)}.example.com`,
    email_verified: true,
    name: long,
    groups: ['dev'],
  });
  await enter(other, keygate);
  await other.context().close();
  await keygate.call('POST', '/v1/users/invitations', { email: `${'y'.repeat(60)}@${'z'.repeat(60)}.example.com`, role: 'editor' });
  await provider.signsIn(ada);
  await enter(page, keygate, 'users');
  const { data } = await keygate.call('GET', '/v1/users');
  const { user_id } = (data as { user_id: string; subject: string }[]).find((u) => u.subject === long)!;
  await keygate.call('PATCH', `/v1/users/${user_id}`, { state: 'suspended' });
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [390, 900, 1440]) {
      await page.setViewportSize({ width, height: 800 });
      for (const [name, path] of [
        ['users', 'users'],
        ['user-invite', 'users?invite=1'],
        ['user', `users/${user_id}`],
        ['invitations', 'users/invitations'],
        ['device', 'device'],
      ] as const) {
        await page.goto(keygate.url + path);
        await settled(page);
        expect.soft(await overflowing(page), `${name} at ${width}`).toEqual([]);
        await accessible(page, scheme === 'light' ? 'all' : 'colours');
        await shot(page, `${name}-${width}-${scheme}`);
      }
    }
  }
});

// Guarantee: a user types the code of a command line on another machine, sees where that is, and approves it after it has signed in
// once more; the command line then has a token, which the screen of the user shows and revokes.
test('a device is approved', async ({ page, keygate, provider, watch }) => {
  watch.allowed.add(403).add(404).add(401);
  const post = async (path: string, body: object) => {
    const r = await fetch(`${keygate.url}v1/session/${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: r.status, body: (await r.json()) as Record<string, string> };
  };
  await provider.signsIn({ ...ada, auth_time: Math.floor(Date.now() / 1000) - 3600 });
  await enter(page, keygate, 'device');
  const { body: begun } = await post('device', { machine: 'build-7' });
  const code = page.getByRole('textbox', { name: 'Code' });
  const type = async (text: string) => {
    await code.fill(text);
    await page.getByRole('button', { name: 'Go on' }).click();
  };
  await type('BBBB-BBBB');
  await expect(page.getByRole('main')).toContainText('no device waits with this code');
  await type(begun.user_code!.toLowerCase());
  await expect(page.getByRole('main')).toContainText('build-7');
  await expect(page.getByRole('main')).toContainText('127.0.0.1');
  await expect(page.getByRole('main')).toContainText('Does everything');
  await accessible(page);
  await page.getByRole('button', { name: 'Approve' }).click();
  await provider.signsIn(ada);
  await page.getByRole('link', { name: 'Sign in once more' }).click();
  await expect(page).toHaveURL(`${keygate.url}device`);
  await type(begun.user_code!);
  await page.getByRole('button', { name: 'Approve' }).click();
  await expect(page.getByRole('main')).toContainText('Approved');
  const { status, body: made } = await post('device/token', {
    grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
    device_code: begun.device_code,
  });
  expect(status).toBe(200);
  const list = () => fetch(`${keygate.url}v1/gateways`, { headers: { Authorization: `Bearer ${made.access_token}` } });
  expect((await list()).status).toBe(200);

  const { body: unwanted } = await post('device', {});
  await page.goto(`${keygate.url}device`);
  await type(unwanted.user_code!);
  await expect(page.getByRole('main')).toContainText('it does not say');
  await page.getByRole('button', { name: 'Deny' }).click();
  await expect(page.getByRole('main')).toContainText('Denied');

  await page.goto(`${keygate.url}users/${(made.user as unknown as { user_id: string }).user_id}`);
  const row = page.getByRole('table', { name: 'Tokens' }).getByRole('row').filter({ hasText: 'build-7' });
  await row.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('button', { name: 'Revoke the token' }).click();
  await expect(page.getByRole('main')).toContainText('No tokens');
  expect((await list()).status).toBe(401);
});
