import { accessible, expect, signIn, test } from './keygate';
import { fill, screens, settled, shot } from './screens';

test('every screen is accessible in both themes, does not shift, and fits 390 px', async ({ page, keygate, upstream, watch }) => {
  test.setTimeout(900_000);
  const id = await fill(keygate, upstream);
  await signIn(page, keygate, 'settings');
  for (const [name, path] of screens(id)) {
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme });
      if (theme === 'light') {
        await page.goto(keygate.url + path);
        await settled(page);
        const moved = await page.evaluate(
          () =>
            new Promise<string[]>((resolve) => {
              const found: string[] = [];
              type Shift = PerformanceEntry & { value: number; hadRecentInput: boolean; sources: { node?: Node }[] };
              new PerformanceObserver((list) => {
                for (const e of list.getEntries() as Shift[]) {
                  if (e.hadRecentInput || e.value < 0.0005) continue; // a digit more in a column of numbers
                  found.push(
                    `${e.value.toFixed(4)}: ${e.sources.map((s) => `${s.node?.nodeName.toLowerCase()} ${s.node?.textContent?.slice(0, 30)}`).join(', ')}`,
                  );
                }
              }).observe({ type: 'layout-shift', buffered: true });
              setTimeout(() => resolve(found), 100);
            }),
        );
        expect.soft(moved, `what moved on ${name}`).toEqual([]);
      }
      // The themes differ in colours alone.
      await test.step(`${name}, ${theme}`, () => accessible(page, theme === 'light' ? 'all' : 'colours'));
      await shot(page, `${name}-${theme}`);
    }
    await page.emulateMedia({ colorScheme: 'light' });
    for (const width of [768, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await settled(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect.soft(wide, `width of ${name} at ${width} px`).toBeLessThanOrEqual(width);
      await shot(page, `${name}-${width}`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });
  }
  watch.check();
});

test('a thousand rows and a clock that is an hour wrong', async ({ page, keygate }) => {
  await keygate.call('POST', '/v1/keys', { name: 'just now', scope: 'read' });
  await page.clock.install({ time: Date.now() + 3_600_000 });
  await signIn(page, keygate, 'keys');
  await expect(page.getByRole('row').filter({ hasText: 'just now' })).toContainText(/now|\d+ s ago/);
});
