import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Builds the binary that the tests drive.
export default function setup() {
  const dir = mkdtempSync(join(tmpdir(), 'keygate-ui-'));
  process.env.KEYGATE_BINARY = join(dir, 'keygate');
  execFileSync('go', ['build', '-o', process.env.KEYGATE_BINARY, './cmd/keygate'], {
    cwd: join(import.meta.dirname, '..', '..'),
    stdio: 'inherit',
  });
  return () => rmSync(dir, { recursive: true, force: true });
}
