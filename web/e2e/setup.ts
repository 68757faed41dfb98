import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Builds the binary that the tests drive, and the identity provider of some.
export default function setup() {
  const dir = mkdtempSync(join(tmpdir(), 'keygate-ui-'));
  process.env.KEYGATE_BINARY = join(dir, 'keygate');
  process.env.PROVIDER_BINARY = join(dir, 'provider');
  for (const [binary, source] of [
    [process.env.KEYGATE_BINARY, './cmd/keygate'],
    [process.env.PROVIDER_BINARY, './internal/keygatetest/providertest/serve'],
  ] as const)
    execFileSync('go', ['build', '-o', binary, source], { cwd: join(import.meta.dirname, '..', '..'), stdio: 'inherit' });
  return () => rmSync(dir, { recursive: true, force: true });
}
