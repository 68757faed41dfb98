import { expect, signIn, test } from './keygate';

// Guarantee: every page has the strict policy, and works under it.
test('the policy forbids what is inline, and the page works under it', async ({ page, keygate, watch }) => {
  const response = await page.goto(keygate.url);
  expect(response?.headers()['content-security-policy']).toBe(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
  );
  await signIn(page, keygate);
  // That a violation would be seen: one is provoked, and forgotten.
  const seen = page.waitForEvent('console', (m) => m.type() === 'error' && m.text().includes('Content Security Policy'));
  await page.evaluate(() => {
    const style = document.createElement('style');
    style.textContent = 'body { color: red }';
    document.head.append(style);
  });
  await seen;
  watch.forget();
});
