import { expect, signIn, test } from './keygate';

test('the documentation is in the dashboard: pages, links between them, and a search', async ({ page, keygate }) => {
  await signIn(page, keygate, 'settings');
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Help' }).click();
  await expect(page.getByRole('heading', { name: 'Help', level: 1 })).toBeVisible();
  await page.getByRole('main').getByRole('link', { name: 'Calls from browsers (CORS)' }).click();
  await expect(page.getByRole('heading', { name: 'Calls from browsers (CORS)', level: 1 })).toBeVisible();
  await expect(page.getByLabel('Commands', { exact: true })).toContainText('keygate gateways update orders --cors-origin');
  // A link leads to the heading of another page, below the header that stays.
  await page.getByRole('link', { name: 'Clients that cannot use the name' }).click();
  await expect(page).toHaveURL(/\/help\/keys-and-limits#clients-that-cannot-use-the-name$/);
  await expect(page.getByRole('heading', { name: 'Clients that cannot use the name' })).toBeInViewport();
  // Nothing of a page's comments, and no link out of the manual but with https.
  expect(await page.getByRole('article').innerText()).not.toContain('<!--');
  for (const href of await page.locator('article a[target]').evaluateAll((all) => all.map((a) => a.getAttribute('href')))) {
    expect(href).toMatch(/^https:\/\//);
  }

  await page.getByRole('link', { name: 'All pages' }).click();
  await page.locator('main [data-search]').fill('rotating secret');
  await expect(page.getByRole('link', { name: 'Events and webhooks: Rotating the secret' })).toBeVisible();
  await page.getByRole('link', { name: 'Events and webhooks: Rotating the secret' }).click();
  await expect(page.getByRole('heading', { name: 'Rotating the secret' })).toBeInViewport();
  await page.goto(`${keygate.url}help/no-such-page`);
  await expect(page.getByRole('heading', { name: 'Page not found' })).toBeVisible();
});

test('the palette finds pages of the documentation', async ({ page, keygate }) => {
  await signIn(page, keygate, 'settings');
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('restore drill');
  await expect(page.getByRole('option', { name: 'Restore drill' })).toBeVisible();
  await page.getByRole('option', { name: 'Restore drill' }).click();
  await expect(page.getByRole('heading', { name: 'Backup and restore', level: 1 })).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Restore drill' })).toBeInViewport();
});
