import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, freePort, test } from './keygate';

test.use({ ignoreHTTPSErrors: true });

// A Guide is what a reader of docs/single-sign-on.md has who follows its section about Dex, but on free ports: Dex and Keygate.
class Guide {
  readonly dir = mkdtempSync(join(tmpdir(), 'keygate-dex-'));
  private process?: ChildProcess;
  url = ''; // of the dashboard

  async start() {
    const page = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'single-sign-on.md'), 'utf8');
    let section = /^## In ten minutes with Dex\n(.*?)^## /ms.exec(page)![1]!;
    const ports = new Map<string, number>();
    for (const port of ['5556', '8080', '8081', '8082']) ports.set(port, await freePort());
    section = section.replaceAll(/127\.0\.0\.1:(\d+)/g, (_, port: string) => `127.0.0.1:${ports.get(port)}`);
    const [prepare, file, start] = [...section.matchAll(/^```\w+.*?\n(.*?)^```/gms)].map((m) => m[1]!);
    writeFileSync(join(this.dir, 'dex.yaml'), file!);
    const addr = (port: string) => `127.0.0.1:${ports.get(port)}`;
    this.url = `http://${addr('8081')}/`;
    this.process = spawn('bash', ['-euc', prepare! + start!], {
      cwd: this.dir,
      detached: true,
      env: {
        PATH: `${dirname(process.env.KEYGATE_BINARY!)}:${process.env.PATH}`,
        HOME: this.dir,
        KEYGATE_GATEWAY_ADDR: addr('8080'),
        KEYGATE_ADMIN_ADDR: addr('8081'),
        KEYGATE_OPS_ADDR: addr('8082'),
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let output = '';
    this.process.stderr!.on('data', (d: Buffer) => (output += d.toString()));
    for (const port of ['8082', '5556'])
      for (let i = 0; !(await listens(ports.get(port)!)); i++) {
        if (i > 600 || this.process.exitCode !== null) throw new Error(`the commands of the guide start nothing:\n${output}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
  }

  // anHourLater moves the time at which everybody has entered a password an hour back.
  anHourLater() {
    const change =
      'import sqlite3; d = sqlite3.connect("keygate-data/keygate.db", 30); d.execute("UPDATE user_sessions SET auth_time = auth_time - 3600000000000"); d.commit()';
    execFileSync('python3', ['-c', change], { cwd: this.dir, stdio: 'inherit' });
  }

  async stop() {
    if (this.process?.exitCode === null) {
      const ended = once(this.process, 'exit');
      process.kill(-this.process.pid!, 'SIGKILL'); // both of them
      await ended;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  const found = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return found;
}

// A Command is a keygate command of a reader of the guide, whose settings are below the guide's directory.
class Command {
  private output = '';
  private readonly child: ChildProcess;
  private readonly ended: Promise<unknown>;

  constructor(guide: Guide, ...args: string[]) {
    this.child = spawn(process.env.KEYGATE_BINARY!, args, {
      cwd: guide.dir,
      env: { PATH: process.env.PATH, HOME: guide.dir, XDG_CONFIG_HOME: guide.dir },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.child.stdout!, this.child.stderr!]) stream.on('data', (d: Buffer) => (this.output += d.toString()));
    this.ended = once(this.child, 'close');
  }

  // says waits until the command has printed a match of a pattern, and returns it.
  async says(pattern: RegExp): Promise<string> {
    await expect(() => expect(this.output).toMatch(pattern)).toPass({ timeout: 60_000 });
    return pattern.exec(this.output)![0];
  }

  // end waits for the end of the command, and returns what it has printed.
  async end(): Promise<string> {
    await this.ended;
    expect(this.child.exitCode, this.output).toBe(0);
    return this.output;
  }
}

// enterDex fills in Dex's form.
async function enterDex(page: Page, name: string) {
  await page.getByRole('textbox', { name: /email/i }).fill(`${name}@example.com`);
  await page.getByLabel('Password').fill('password');
  await page.getByRole('button', { name: 'Login' }).click();
}

const main = (page: Page) => page.getByRole('navigation', { name: 'Main' });

// Guarantee: identity.md, section 4: with Dex and the commands of docs/single-sign-on.md, a first sign-in has the role of its group,
// which lets it do what the role says; who is in no group is refused, and let in by an invitation; a change of users asks
// who signed in an hour ago to do so once more; another role and a suspension count under an open page.
test('single sign-on with Dex', async ({ page, watch }) => {
  test.setTimeout(240_000);
  watch.allowed.add(403);
  const guide = new Guide();
  try {
    await guide.start();
    const through = (p: Page) => p.getByRole('link', { name: 'Continue with 127.0.0.1' });
    const signIn = async (p: Page, name: string, path = '') => {
      await p.goto(guide.url + path);
      await through(p).click();
      await enterDex(p, name);
    };
    const browser = async () => {
      const context = await page.context().browser()!.newContext({ ignoreHTTPSErrors: true });
      return context.newPage();
    };

    const dan = await browser();
    await signIn(dan, 'dan', 'keys');
    await expect(dan.getByRole('button', { name: 'Create a key' }).first()).toHaveAccessibleDescription(/the role “viewer”/);
    const eve = await browser();
    await signIn(eve, 'eve');
    await expect(eve.getByRole('heading', { name: 'Not signed in' })).toBeVisible();
    await expect(eve.getByText('the user is new and has no role')).toBeVisible();

    await signIn(page, 'ada', 'users');
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'Invite a user' }).click();
    await dialog.getByLabel('Email').fill('eve@example.com');
    await dialog.getByLabel('Role').selectOption('editor');
    await dialog.getByRole('button', { name: 'Create the invitation' }).click();
    await expect(dialog).toContainText('The user is invited');
    const link = (await dialog.locator('[data-secret]').textContent()) ?? '';

    await eve.goto(link);
    await enterDex(eve, 'eve');
    await expect(main(eve)).toBeAttached();
    await eve.goto(`${guide.url}keys`);
    const create = eve.getByRole('button', { name: 'Create a key' }).first();
    await expect(create).toBeEnabled();

    await dialog.getByRole('button', { name: 'Done' }).click();
    await dialog.getByRole('button', { name: 'Close without copying' }).click();
    await page.goto(`${guide.url}users`);
    await page.getByRole('link', { name: 'Eve' }).click();
    const demote = async () => {
      await page.getByRole('button', { name: 'Change the role' }).click();
      await dialog.getByLabel('Role').selectOption('viewer');
      await dialog.getByRole('button', { name: 'Change the role' }).click();
    };
    guide.anHourLater();
    await demote();
    await expect(dialog.getByRole('alert')).toContainText('you signed in longer than 5 minutes ago');
    await dialog.getByRole('link', { name: 'Sign in once more' }).click();
    await enterDex(page, 'ada');
    await expect(page.getByRole('heading', { level: 1 })).toContainText('Eve');
    await demote();
    await expect(page.getByText('The role of “Eve” is changed')).toBeVisible();
    await eve.reload();
    await expect(create).toHaveAccessibleDescription(/the role “viewer”/);

    await page.getByRole('button', { name: 'Suspend' }).click();
    await dialog.getByRole('button', { name: 'Suspend the user' }).click();
    await expect(page.getByText('User “Eve” is suspended')).toBeVisible();
    await eve.getByRole('link', { name: 'Gateways' }).click(); // without loading the page again
    await through(eve).click();
    await enterDex(eve, 'eve');
    await expect(eve.getByText('the user is suspended')).toBeVisible();
    await expect(main(dan)).toBeAttached();
    await dan.reload();
    await expect(main(dan)).toBeAttached();
    for (const p of [dan, eve]) await p.context().close();
  } finally {
    await guide.stop();
  }
});

// Guarantee: identity.md, section 3: with Dex, a command line signs in through a browser of its machine, and another one by a code that
// its user types in the dashboard. Both then do what the user's role allows.
test('command lines sign in with Dex', async ({ page, watch }) => {
  test.setTimeout(240_000);
  watch.allowed.add(400); // of the command line, which has no icon
  const guide = new Guide();
  try {
    await guide.start();
    const loopback = new Command(guide, 'login', '--url', guide.url, '--sso', '--name', 'here');
    await page.goto(await loopback.says(/http:\S+\/v1\/session\/sso\?\S+/));
    await enterDex(page, 'ada');
    await page.getByRole('main').getByRole('link').first().click();
    await loopback.end();
    expect(await new Command(guide, 'users', 'list').end()).toContain('ada@example.com');

    const device = new Command(guide, 'login', '--url', guide.url, '--device', '--name', 'there');
    const code = await device.says(/\b[A-Z]{4}-[A-Z]{4}\b/);
    await page.goto(`${guide.url}device`);
    await page.getByRole('link', { name: 'Continue with 127.0.0.1' }).click();
    await enterDex(page, 'ada');
    await page.getByRole('textbox', { name: 'Code' }).fill(code);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('button', { name: 'Approve' }).click();
    await expect(page.getByRole('main')).toContainText('Approved');
    await device.end();
    expect(await new Command(guide, 'context', 'list').end()).toMatch(/here[^]*there/);
    expect(await new Command(guide, 'users', 'list').end()).toContain('ada@example.com');
  } finally {
    await guide.stop();
  }
});
