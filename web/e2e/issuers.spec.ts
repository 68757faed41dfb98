import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { accessible, expect, type Keygate, signIn, test } from './keygate';
import { overflowing, settled, shot } from './screens';

// newKey returns a key that signs tokens, and the JWK Set with its public part.
function newKey(kid: string): { key: KeyObject; jwks: { keys: object[] } } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return { key: privateKey, jwks: { keys: [{ ...publicKey.export({ format: 'jwk' }), kid, alg: 'EdDSA' }] } };
}

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

// mint returns a token of an hour.
function mint(key: KeyObject, kid: string, claims: object): string {
  const now = Math.floor(Date.now() / 1000);
  const signed = `${encode({ alg: 'EdDSA', kid, typ: 'at+jwt' })}.${encode({ iat: now, exp: now + 3600, ...claims })}`;
  return `${signed}.${sign(null, Buffer.from(signed), key).toString('base64url')}`;
}

const url = 'https://login.example.com/';
const audience = 'https://api.example.com';

const createIssuer = (k: Keygate, jwks: object, more: object = {}) =>
  k.call('POST', '/v1/issuers', { name: 'login', issuer: url, audiences: [audience], jwks, default_scopes: ['read'], ...more });

// Guarantee: an issuer is created by the form, named by a gateway, and its tokens taken by a route, without a command line; a check of
// a token says whom it identifies, or which check it fails, and the token stays nowhere.
test('an issuer is created, named by a gateway, and its tokens taken', async ({ page, keygate, upstream, watch }) => {
  watch.allowed.add(422).add(409);
  const { key, jwks } = newKey('k1');
  const { gateway_id } = await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: upstream.url,
    config: 'routes: [{path: /a, methods: [GET]}]',
  });
  await signIn(page, keygate, 'issuers');
  await page.getByRole('main').getByRole('button', { name: 'Create an issuer' }).first().click();
  await page.getByLabel('Name', { exact: true }).fill('login');
  await page.getByLabel('Issuer', { exact: true }).fill('http://login.example.com/');
  await page.getByLabel('Where its keys come from').selectOption('given');
  await page.getByLabel('Its keys', { exact: true }).fill(JSON.stringify(jwks));
  await page.getByLabel('Audiences').fill(audience);
  await page.getByLabel('Claim with the owner').fill('org');
  await page.getByLabel('Default scopes').fill('read:a');
  const required = page.getByRole('group', { name: 'Required claims' });
  await required.getByRole('button', { name: 'Add' }).click();
  await required.getByLabel('Required claims 1: name').fill('verified');
  await required.getByLabel('Required claims 1: value').fill('true');
  await page.getByRole('button', { name: 'Create the issuer' }).click();
  await expect(page.getByLabel('Issuer', { exact: true })).toBeFocused();
  await expect(page.getByLabel('Issuer', { exact: true })).toHaveAccessibleDescription(/https/);
  await page.getByLabel('Issuer', { exact: true }).fill(url);
  await page.getByRole('button', { name: 'As code' }).click();
  await expect(page.getByRole('dialog')).toContainText('keygate issuers create login --issuer https://login.example.com/');
  await expect(page.getByRole('dialog')).toContainText('required: {"verified":true}');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Create the issuer' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'login' })).toBeVisible();
  const [made] = (await keygate.call('GET', '/v1/issuers')).data;
  expect(made).toMatchObject({ name: 'login', issuer: url, jwks, required: { verified: true }, claims: { owner: 'org' }, leeway: '60s' });
  await expect(page.getByRole('row').filter({ hasText: 'k1' })).toContainText('In force');
  await expect(page.getByRole('button', { name: 'Fetch the keys' })).toHaveAccessibleDescription(/given by hand/);
  await expect(page.getByRole('main')).toContainText('No gateway names it');

  await page.goto(`${keygate.url}gateways/${gateway_id}/settings`);
  await page.getByRole('group', { name: 'Issuers of tokens' }).getByLabel('login').check();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Gateway “orders” was saved')).toBeVisible();
  await page.goto(`${keygate.url}gateways/${gateway_id}/routes`);
  await page.getByRole('link', { name: '/a' }).click();
  await page.getByRole('button', { name: 'Change callers' }).click();
  await page.getByRole('dialog').getByLabel('Callers').selectOption('any');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('main')).toContainText('need a key or a token');
  const token = mint(key, 'k1', { iss: url, aud: audience, sub: 'ada', org: 'acme', verified: true });
  expect(await keygate.request('/a', token)).toBe(200);
  const other = mint(key, 'k1', { iss: url, aud: 'https://web.example.com', sub: 'ada', verified: true });
  expect(await keygate.request('/a', other)).toBe(401);

  await page.goto(`${keygate.url}issuers/${made.issuer_id}`);
  await page.getByRole('button', { name: 'Check a token' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Token').fill(token);
  await dialog.getByLabel('Path').fill('/a');
  await dialog.getByRole('button', { name: 'Check' }).click();
  await expect(dialog).toContainText('Would be let in');
  await expect(dialog).toContainText('login/acme');
  await dialog.getByText('What the token says').click();
  await expect(dialog.getByLabel('Claims', { exact: true })).toContainText('"sub": "ada"');
  await accessible(page);
  await shot(page, 'token-check');
  await dialog.getByLabel('Path').fill('/b');
  await dialog.getByRole('button', { name: 'Check' }).click();
  await expect(dialog).toContainText('scope does not allow');
  await dialog.getByLabel('Token').fill(other);
  await dialog.getByRole('button', { name: 'Check' }).click();
  await expect(dialog).toContainText('Would be refused');
  await expect(dialog).toContainText('https://web.example.com');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Check a token' }).click();
  await expect(page.getByRole('dialog').getByLabel('Token')).toHaveValue('');
  await page.keyboard.press('Escape');
  const kept = await page.evaluate(() => JSON.stringify([document.documentElement.outerHTML, location.href, localStorage, sessionStorage]));
  expect(kept).not.toContain(token.slice(-40));

  await page.getByRole('button', { name: 'Deny tokens' }).click();
  await page.getByRole('dialog').getByLabel('Subject').fill('ada');
  await page.getByRole('dialog').getByLabel('Until').fill('yesterday');
  await page.getByRole('dialog').getByRole('button', { name: 'Deny the tokens' }).click();
  await expect(page.getByRole('dialog').getByLabel('Until')).toBeFocused();
  await page.getByRole('dialog').getByLabel('Until').fill('');
  await page.getByRole('dialog').getByRole('button', { name: 'Deny the tokens' }).click();
  await expect(page.getByRole('row').filter({ hasText: 'Subject ada' })).toBeVisible();
  expect(await keygate.request('/a', token)).toBe(401);
  await settled(page);
  await accessible(page);
  await shot(page, 'denials');
  await page.getByRole('button', { name: 'Lift' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Lift the denial' }).click();
  await expect(page.getByRole('main')).toContainText('No denials');
  expect(await keygate.request('/a', token)).toBe(200);

  await page.getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByRole('dialog')).toContainText('This gateway names it: orders');
  await page.getByRole('dialog').getByRole('button', { name: 'Delete the issuer' }).click();
  await expect(page.getByRole('dialog').getByRole('alert')).toContainText('orders');
  await page.keyboard.press('Escape');
  await keygate.call('PATCH', `/v1/gateways/${gateway_id}`, { issuers: null });
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete the issuer' }).click();
  await expect(page.getByText('Issuer “login” is deleted')).toBeVisible();
  await expect(page.getByRole('main')).toContainText('No issuers yet');
});

// Guarantee: a provider that cannot be reached is shown with why, in the list and on the page of the issuer; its keys are fetched on
// demand; a form that is saved unchanged sends nothing, and a change sends what was touched.
test('an issuer without keys says why, and is edited', async ({ page, keygate, watch }) => {
  watch.allowed.add(412);
  const { jwks } = newKey('k2');
  const { issuer_id } = await keygate.call('POST', '/v1/issuers', { name: 'login', issuer: 'https://127.0.0.1:9/', audiences: ['api'] });
  await expect.poll(async () => (await keygate.call('GET', `/v1/issuers/${issuer_id}`)).state).toBe('unreachable');
  await signIn(page, keygate, 'issuers');
  const row = page.getByRole('row').filter({ hasText: 'login' });
  await expect(row).toContainText('Unreachable');
  await row.getByRole('link', { name: 'login' }).click();
  await expect(page.getByRole('main')).toContainText('Its keys could not be fetched the last time');
  await expect(page.getByRole('main')).toContainText('the provider refused the connection');
  const refreshed = page.waitForResponse((r) => r.url().endsWith('/refresh'));
  await page.getByRole('button', { name: 'Fetch the keys' }).click();
  expect((await refreshed).status()).toBe(200);
  await page.getByRole('link', { name: 'What to do' }).click();
  await expect(page.getByRole('heading', { name: 'If keys are not fetched' })).toBeVisible();

  await page.goto(`${keygate.url}issuers/${issuer_id}/edit`);
  await expect(page.getByRole('button', { name: 'Save' })).toHaveAccessibleDescription('Nothing has been changed yet.');
  await page.getByLabel('Where its keys come from').selectOption('given');
  await page.getByLabel('Its keys', { exact: true }).fill(JSON.stringify(jwks));
  await page.getByLabel('Prefix of owners').selectOption('none');
  await keygate.call('PATCH', `/v1/issuers/${issuer_id}`, { leeway: '30s' });
  const [failed] = await Promise.all([
    page.waitForRequest((r) => r.method() === 'PATCH'),
    page.getByRole('button', { name: 'Save' }).click(),
  ]);
  expect(failed.postDataJSON()).toEqual({ jwks, owner_prefix: '' });
  await expect(page.getByText('Leeway').first()).toBeVisible();
  await page.getByRole('button', { name: /keep/i }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Issuer “login” was saved')).toBeVisible();
  await expect(page.getByRole('row').filter({ hasText: 'k2' })).toContainText('In force');
  expect(await keygate.call('GET', `/v1/issuers/${issuer_id}`)).toMatchObject({ leeway: '30s', owner_prefix: '', jwks, state: 'ok' });
});

// Guarantee: a key that may only read sees issuers, and no button of theirs works, with the reason; one that may write, but does not
// administer, may fetch keys alone.
test('what a key may do with issuers', async ({ page, keygate }) => {
  const { issuer_id } = await createIssuer(keygate, newKey('k3').jwks);
  const path = `issuers/${issuer_id}`;
  for (const [scope, may] of [
    ['read', ['Check a token']],
    ['write', ['Check a token']],
  ] as const) {
    const { key } = await keygate.call('POST', '/v1/keys', { name: scope, level: 'account', scope });
    await page.context().clearCookies();
    await page.goto(keygate.url);
    await page.evaluate(() => localStorage.clear());
    await signIn(page, keygate, path, key);
    await expect(page.getByRole('heading', { level: 1, name: 'login' })).toBeVisible();
    for (const name of ['Edit', 'Delete'])
      await expect(page.getByRole('button', { name, exact: true })).toHaveAccessibleDescription(/needs “admin”/);
    const fetching = page.getByRole('button', { name: 'Fetch the keys' });
    await expect(fetching).toHaveAccessibleDescription(scope === 'read' ? /needs “write”/ : /given by hand/);
    for (const name of may) await expect(page.getByRole('button', { name })).toBeEnabled();
    await page.goto(`${keygate.url}issuers`);
    await expect(page.getByRole('button', { name: 'Create an issuer' }).first()).toHaveAccessibleDescription(/needs “admin”/);
    await page.goto(`${keygate.url}${path}/edit`);
    await page.getByLabel('Leeway').fill('5s');
    await expect(page.getByRole('button', { name: 'Save' })).toHaveAccessibleDescription(/needs “admin”/);
  }
});

// Guarantee: the screens of issuers have no problem that axe finds, and nothing is cut off, in both themes and at three widths, with
// the longest texts; the keyboard alone leads from the list to an issuer and back.
test('issuers in both themes and at three widths', async ({ page, keygate }) => {
  const long = 'x'.repeat(60);
  const { key, jwks } = newKey(long.repeat(4));
  void key;
  const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey.export({ format: 'jwk' });
  const given = { keys: [...jwks.keys, { ...rsa, kid: 'short', use: 'enc' }] };
  const { issuer_id } = await createIssuer(keygate, given, {
    name: `login-${long.slice(0, 50)}`,
    issuer: `${url}${long}/${long}`,
    audiences: [audience, `${audience}/${long}${long}`],
    typ: 'at+jwt',
    required: { tenant: ['a', 'b'], [long]: long, verified: true },
    claims: { scope: 'realm_access.roles', owner: 'org_id', plan: 'plan' },
    scope_map: { 'order-admin': 'write:orders', [long]: 'read:orders' },
    claim_headers: { 'X-User-Email': 'email' },
  });
  await keygate.call('POST', '/v1/issuers', { name: 'far', issuer: 'https://127.0.0.1:9/', audiences: ['api'] });
  await keygate.call('POST', '/v1/gateways', {
    name: 'orders',
    upstream_url: 'http://127.0.0.1:9',
    issuers: [`login-${long.slice(0, 50)}`],
  });
  await expect.poll(async () => (await keygate.call('GET', '/v1/issuers?name=far')).data[0].state).toBe('unreachable');
  await signIn(page, keygate, 'issuers');
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [360, 768, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      for (const [name, path] of [
        ['issuers', 'issuers'],
        ['issuer', `issuers/${issuer_id}`],
        ['issuer-new', 'issuers/new'],
        ['issuer-edit', `issuers/${issuer_id}/edit`],
      ] as const) {
        await page.goto(keygate.url + path);
        await settled(page);
        expect.soft(await overflowing(page), `${name} at ${width}`).toEqual([]);
        await accessible(page, scheme === 'light' ? 'all' : 'colours');
        await shot(page, `${name}-${width}-${scheme}`);
      }
    }
  }
  await page.goto(`${keygate.url}issuers`);
  await settled(page);
  await page.keyboard.press('g');
  await page.keyboard.press('i');
  await page.getByRole('link', { name: 'far' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1 })).toContainText('login-');
});
