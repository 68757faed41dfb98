import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHTTPServer, type IncomingMessage, type RequestListener, type Server as HTTPServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Systems give ports from 32768 on to connections that ask for any. The processes of the tests begin at different ports.
let nextPort = 27_000 + (process.pid % 50) * 100;

async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort++;
    const s = createServer().listen(port, '127.0.0.1');
    const free = await once(s, 'listening').then(
      () => true,
      () => false,
    );
    if (!free) continue;
    s.close();
    await once(s, 'close');
    return port;
  }
}

// A Server is a Keygate server with its own data.
export class Server {
  readonly dir = mkdtempSync(join(tmpdir(), 'keygate-data-'));
  url = '';
  key = '';
  gateway = '';
  private process?: ChildProcess;

  static async start(): Promise<Server> {
    const s = new Server();
    const [admin, gateway, ops] = [await freePort(), await freePort(), await freePort()].map((p) => `127.0.0.1:${p}`);
    const args = ['serve', '--data-dir', s.dir, '--admin-addr', admin!, '--gateway-addr', gateway!, '--ops-addr', ops!];
    const child = spawn(process.env.KEYGATE_BINARY!, [...args, '--webhook-allow-network', '127.0.0.0/8'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (d: Buffer) => (output += d.toString()));
    s.process = child;
    for (let i = 0; i < 1200 && child.exitCode === null; i++) {
      const ready = await fetch(`http://${ops}/readyz`).then(
        (r) => r.ok,
        () => false,
      );
      if (ready) {
        s.url = `http://${admin}`;
        s.gateway = `http://${gateway}`;
        s.key = readFileSync(join(s.dir, 'admin.key'), 'utf8').trim();
        return s;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await s.stop();
    throw new Error(`keygate did not become ready:\n${output}`);
  }

  async stop() {
    const child = this.process;
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

// A Stub is an HTTP server that answers as a test says.
export class Stub {
  readonly requests: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = [];
  answer: RequestListener = (_request, response) => response.end('{}');
  private readonly server: HTTPServer = createHTTPServer((request, response) => {
    let body = '';
    request.on('data', (d: Buffer) => (body += d.toString()));
    request.on('end', () => {
      this.requests.push({ method: request.method!, url: request.url!, headers: request.headers, body });
      this.answer(request, response);
    });
  });

  static async start(): Promise<Stub> {
    const s = new Stub();
    s.server.listen(0, '127.0.0.1');
    await once(s.server, 'listening');
    return s;
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
