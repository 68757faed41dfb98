// Measures the dashboard in a real browser for bench/dashboard, which starts it: reads what to measure as
// JSON from the standard input, and writes figures as one line of JSON each to the standard output.
//
//   {"url", "key", "rounds", "screens": {name: path}, "search": {name: path}, "stay": seconds}
import { text } from 'node:stream/consumers';
import { chromium } from '@playwright/test';

const task = JSON.parse(await text(process.stdin));
const say = (figure) => process.stdout.write(`${JSON.stringify(figure)}\n`);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-dev-shm-usage',
    '--enable-precise-memory-info',
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
  ],
});
try {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await context.addInitScript(observe);
  const page = await context.newPage();
  await page.goto(task.url);
  await page.getByLabel('Account-level key').fill(task.key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation', { name: 'Main' }).waitFor();
  for (const [name, path] of Object.entries(task.screens)) await open(page, name, path);
  for (const [name, path] of Object.entries(task.search)) await search(page, name, path);
  if (task.stay) await stay(page);
} finally {
  await browser.close();
}

// observe runs in each page before its scripts. Painted is the time at which the first frame after the
// data was there was handed over; times are milliseconds since the navigation.
function observe() {
  const seen = { painted: 0, shift: 0, moved: [], tasks: [] };
  globalThis.seen = seen;
  const watch = (type, add) => new PerformanceObserver((list) => list.getEntries().forEach(add)).observe({ type, buffered: true });
  const of = ({ node }) => `${node?.nodeName.toLowerCase()} ${(node?.textContent ?? '').trim().slice(0, 30)}`;
  watch('layout-shift', (e) => {
    if (e.hadRecentInput) return;
    seen.shift += e.value;
    seen.moved.push(...e.sources.map(of));
  });
  watch('longtask', (e) => seen.tasks.push([e.startTime, e.duration]));
  const look = () => {
    if (seen.painted) return;
    const main = document.querySelector('main');
    if (main?.querySelector('h1') && !main.querySelector('.skeleton, [aria-busy=true]')) {
      seen.painted = -1;
      requestAnimationFrame(() =>
        setTimeout(() => {
          seen.painted = performance.now();
        }),
      );
    }
  };
  new MutationObserver(look).observe(document, {
    childList: true,
    subtree: true,
    attributes: true,
    attributeFilter: ['class', 'aria-busy'],
  });
}

// open loads a screen from its address, as often as asked.
async function open(page, name, path) {
  for (let round = 0; round < task.rounds; round++) {
    await page.goto(task.url + path);
    await page.waitForFunction(() => globalThis.seen.painted > 0);
    await page.waitForTimeout(500); // what comes late may shift or block as well
    const seen = await page.evaluate(() => ({
      ...globalThis.seen,
      first: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
      rows: document.querySelectorAll('main tbody tr').length,
    }));
    const blocking = seen.tasks.filter(([at]) => at >= seen.first).reduce((sum, [, took]) => sum + Math.max(0, took - 50), 0);
    say({ kind: 'screen', name, painted: seen.painted, shift: seen.shift, moved: seen.moved, blocking, rows: seen.rows });
  }
}

// search types into the search box of a list and tells the longest task of the page meanwhile.
async function search(page, name, path) {
  await page.goto(task.url + path);
  await page.waitForFunction(() => globalThis.seen.painted > 0);
  await page.evaluate(() => {
    globalThis.seen.tasks = [];
  });
  const box = page.locator('[data-search]').first();
  await box.click();
  for (let round = 0; round < task.rounds; round++) {
    await box.pressSequentially('partner 4', { delay: 60 });
    await page.waitForTimeout(600); // the search is sent and answered
    await box.fill('');
    await page.waitForTimeout(400);
  }
  const tasks = await page.evaluate(() => globalThis.seen.tasks);
  say({ kind: 'search', name, longest: Math.max(0, ...tasks.map(([, took]) => took)) });
}

// stay leaves the overview open and tells its size when asked: a line on the standard output for the
// start and for each tenth of the time.
async function stay(page) {
  await page.goto(task.url);
  await page.waitForFunction(() => globalThis.seen.painted > 0);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const size = async (at) => {
    await cdp.send('HeapProfiler.collectGarbage');
    const { metrics } = await cdp.send('Performance.getMetrics');
    const of = (wanted) => metrics.find((m) => m.name === wanted).value;
    say({ kind: 'stay', at, heap: of('JSHeapUsedSize'), nodes: of('Nodes'), listeners: of('JSEventListeners') });
  };
  for (let tenth = 0; tenth <= 10; tenth++) {
    if (tenth > 0) await page.waitForTimeout(task.stay * 100);
    await size((tenth * task.stay) / 10);
  }
}
