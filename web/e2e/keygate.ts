import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createListener } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AxeBuilder } from '@axe-core/playwright';
import { test as base, expect, type Page } from '@playwright/test';

export { expect };

// The next port to try. Systems give ports from 32768 on to connections that ask for any, so that a port below is not
// taken between the moment that it was found free and the start of the server.
let nextPort = 20_000 + Number(process.env.TEST_PARALLEL_INDEX ?? 0) * 2_000;

// freePort returns a port of 127.0.0.1 that nothing listens on.
export async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort++;
    const s = createListener();
    s.listen(port, '127.0.0.1');
    const free = await once(s, 'listening').then(
      () => true,
      () => false, // another program listens there
    );
    if (!free) continue;
    s.close();
    await once(s, 'close');
    return port;
  }
}

type Handler = (request: IncomingMessage, body: string, response: ServerResponse) => void;

// A Service is an HTTP server of the test: an upstream, or a receiver of webhooks.
export class Service {
  readonly requests: { method: string; path: string; headers: IncomingMessage['headers']; body: string }[] = [];
  handler: Handler = (_request, _body, response) => response.end('ok');
  private constructor(private readonly server: Server) {}

  static async start(): Promise<Service> {
    const server = createServer();
    const service = new Service(server);
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        service.requests.push({ method: request.method ?? '', path: request.url ?? '', headers: request.headers, body });
        service.handler(request, body, response);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return service;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop() {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }
}

type Json = Record<string, any>;

// A Keygate is a server of its own, with its own data directory.
export class Keygate {
  private process?: ChildProcess;
  private output = '';
  key = ''; // the first account-level key, with the scope admin
  private constructor(
    private readonly dir: string,
    readonly admin: string, // host:port
    readonly gateway: string,
    private readonly ops: string,
    private readonly flags: string[],
    readonly basePath: string,
  ) {}

  static async start(flags: string[] = [], basePath = '/'): Promise<Keygate> {
    const ports = [await freePort(), await freePort(), await freePort()].map((p) => `127.0.0.1:${p}`);
    const k = new Keygate(mkdtempSync(join(tmpdir(), 'keygate-data-')), ports[0]!, ports[1]!, ports[2]!, flags, basePath);
    await k.boot();
    k.key = readFileSync(join(k.dir, 'admin.key'), 'utf8').trim();
    return k;
  }

  get url(): string {
    return `http://${this.admin}${this.basePath}`;
  }

  // boot starts the process and returns when it is ready.
  async boot() {
    const args = [
      'serve',
      '--data-dir',
      this.dir,
      '--admin-addr',
      this.admin,
      '--gateway-addr',
      this.gateway,
      '--ops-addr',
      this.ops,
      '--webhook-allow-network',
      '127.0.0.0/8',
      ...(this.basePath === '/' ? [] : ['--admin-base-path', this.basePath]),
      ...this.flags,
    ];
    const child = spawn(process.env.KEYGATE_BINARY!, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.process = child;
    for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (d: Buffer) => (this.output += d.toString()));
    for (let i = 0; i < 600; i++) {
      if (child.exitCode !== null) break;
      if (
        await fetch(`http://${this.ops}/readyz`).then(
          (r) => r.ok,
          () => false,
        )
      )
        return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`keygate did not become ready:\n${this.output}`);
  }

  // halt ends the process and keeps its data.
  async halt(signal: NodeJS.Signals = 'SIGTERM') {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  async stop() {
    await this.halt('SIGKILL');
    rmSync(this.dir, { recursive: true, force: true });
  }

  // call calls the management API with the first key and returns the body. Other responses than 2xx throw.
  async call(method: string, path: string, body?: unknown, key = this.key): Promise<Json> {
    const response = await fetch(`http://${this.admin}${this.basePath}${path.slice(1)}`, {
      method,
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text) as Json;
  }

  // request calls the default gateway, with a key if one is given, and returns the status.
  async request(path: string, key?: string, headers: Record<string, string> = {}): Promise<number> {
    const response = await fetch(`http://${this.gateway}${path}`, {
      headers: { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...headers },
    });
    await response.arrayBuffer();
    return response.status;
  }
}

// What the browser must never say: errors of the console or the page, and violations of the policy.
// Failed requests are also printed to the console by the browser; a test that provokes them allows their
// statuses.
export class Watch {
  private readonly problems: string[] = [];
  readonly allowed = new Set<number>([401]); // the first question for the account, before sign-in
  offline = false; // the test stops the server

  constructor(page: Page) {
    page.on('console', (m) => {
      if (m.type() !== 'error' && m.type() !== 'warning') return;
      const status = /Failed to load resource: the server responded with a status of (\d+)/.exec(m.text())?.[1];
      if (status && this.allowed.has(Number(status))) return;
      if (status === '404' && m.location().url.endsWith('/repository')) return; // no repository is connected
      if (this.offline && /net::ERR_|Failed to fetch/.test(m.text())) return;
      // The server ends before the page does: what was being read then is cut off.
      if (/net::ERR_(CONNECTION_RESET|CONNECTION_REFUSED|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING)/.test(m.text())) return;
      this.problems.push(`console: ${m.text()} (${m.location().url})`);
    });
    page.on('pageerror', (e) => this.problems.push(`page: ${e.stack ?? e.message}`));
    page.on('request', (r) => {
      if (!/^(https?:\/\/(127\.0\.0\.1|localhost)[:/]|data:|blob:)/.test(r.url()))
        this.problems.push(`request to another host: ${r.url()}`);
    });
  }

  // forget drops what was provoked on purpose.
  forget() {
    this.problems.length = 0;
  }

  check() {
    expect(this.problems, 'errors of the browser').toEqual([]);
  }
}

interface Fixtures {
  keygate: Keygate; // one for each test
  upstream: Service;
  watch: Watch;
}

export const test = base.extend<Fixtures>({
  // eslint-disable-next-line no-empty-pattern
  keygate: async ({}, use) => {
    const k = await Keygate.start();
    await use(k);
    await k.stop();
  },
  // eslint-disable-next-line no-empty-pattern
  upstream: async ({}, use) => {
    const s = await Service.start();
    await use(s);
    await s.stop();
  },
  watch: [
    async ({ page }, use) => {
      const w = new Watch(page);
      await use(w);
      w.check();
    },
    { auto: true },
  ],
});

// signIn opens a page and signs in through the form.
export async function signIn(page: Page, keygate: Keygate, path = '', key = keygate.key) {
  await page.goto(keygate.url + path);
  await page.getByLabel('Account-level key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('navigation', { name: 'Main' })).toBeAttached();
}

// accessible fails for a violation that axe finds: of any rule, or of those that depend on colours.
export async function accessible(page: Page, rules: 'all' | 'colours' = 'all') {
  const axe = new AxeBuilder({ page });
  if (rules === 'colours') axe.withRules(['color-contrast', 'link-in-text-block']);
  else
    axe
      .withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'])
      .options({ rules: { 'label-content-name-mismatch': { enabled: true } } });
  const { violations } = await axe.analyze();
  expect.soft(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`)).toEqual([]);
}
