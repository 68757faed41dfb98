import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Builds the binary that the tests drive, and the identity providers of some: one of our own, and Dex.
export default function setup() {
  const dir = mkdtempSync(join(tmpdir(), 'keygate-ui-'));
  process.env.KEYGATE_BINARY = join(dir, 'keygate');
  process.env.PROVIDER_BINARY = join(dir, 'provider');
  for (const [binary, source, module] of [
    [process.env.KEYGATE_BINARY, './cmd/keygate', '.'],
    [process.env.PROVIDER_BINARY, './internal/keygatetest/providertest/serve', '.'],
    [join(dir, 'dex'), '.', 'conformance/dex'],
  ] as const)
    execFileSync('go', ['build', '-o', binary, source], { cwd: join(import.meta.dirname, '..', '..', module), stdio: 'inherit' });
  return () => rmSync(dir, { recursive: true, force: true });
}
