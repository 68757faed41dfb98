import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';

// A Provider is an identity provider of the test, a process of its own. Its certificate is self-signed: a test that goes there
// has ignoreHTTPSErrors.
export class Provider {
  private constructor(
    private readonly child: ChildProcess,
    private readonly lines: Interface,
    private readonly dir: string,
    readonly issuer: string,
    readonly flags: string[], // of keygate serve
  ) {}

  static async start(more: string[] = []): Promise<Provider> {
    const child = spawn(process.env.PROVIDER_BINARY!, [], { stdio: ['pipe', 'pipe', 'inherit'] });
    const lines = createInterface({ input: child.stdout! });
    const [first] = (await once(lines, 'line')) as [string];
    const told = JSON.parse(first) as { issuer: string; ca: string; client_id: string; client_secret: string };
    const dir = mkdtempSync(join(tmpdir(), 'keygate-provider-'));
    const file = (name: string, content: string) => {
      writeFileSync(join(dir, name), content, { mode: 0o600 });
      return join(dir, name);
    };
    return new Provider(child, lines, dir, told.issuer, [
      `--sso-issuer=${told.issuer}`,
      `--sso-client-id=${told.client_id}`,
      `--sso-client-secret-file=${file('secret', told.client_secret)}`,
      `--sso-ca=${file('ca.pem', told.ca)}`,
      ...more,
    ]);
  }

  // tell sends a line, and returns when the provider has done what it says.
  private async tell(line: object) {
    const done = once(this.lines, 'line');
    this.child.stdin!.write(`${JSON.stringify(line)}\n`);
    await done;
  }

  // knows registers the redirect URI of a server.
  knows(url: string): Promise<void> {
    return this.tell({ redirect_uri: `${url}v1/session/sso/callback` });
  }

  // signsIn is who signs in at the provider from now on.
  signsIn(claims: { sub: string } & Record<string, unknown>): Promise<void> {
    return this.tell({ claims });
  }

  async stop() {
    const ended = once(this.child, 'exit');
    this.child.stdin!.end();
    await ended;
    rmSync(this.dir, { recursive: true, force: true });
  }
}
