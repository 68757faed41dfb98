// Packs the package, installs it in a new project, and runs the tests there against the real server, which it builds.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const here = import.meta.dirname;
const project = mkdtempSync(join(tmpdir(), 'keygate-client-'));
const run = (command, args, options = {}) => execFileSync(command, args, { cwd: project, stdio: 'inherit', ...options });
let failed = false;
try {
  const binary = join(project, 'keygate');
  run('go', ['build', '-o', binary, './cmd/keygate'], { cwd: join(here, '..', '..', '..') });
  run('npm', ['pack', '--silent', '--pack-destination', project], { cwd: join(here, '..') });
  const packed = readdirSync(project).find((name) => name.endsWith('.tgz'));
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'project', private: true, type: 'module' }));
  run('npm', ['install', '--offline', '--no-audit', '--no-fund', '--silent', `./${packed}`]);
  cpSync(join(here, '.'), join(project, 'test'), { recursive: true });
  // What the tests need beside the package: types and the browser's driver.
  for (const name of ['@types', '@playwright', 'playwright', 'playwright-core', 'undici-types']) {
    symlinkSync(join(here, '..', 'node_modules', name), join(project, 'node_modules', name));
  }
  run(join(here, '..', 'node_modules', '.bin', 'tsc'), ['-p', 'test/tsconfig.json']);
  const tests = readdirSync(join(project, 'built')).filter((name) => name.endsWith('.test.js'));
  run(
    'node',
    ['--test', '--test-reporter=spec', '--test-timeout=300000', '--test-concurrency=2', ...tests.map((name) => join('built', name))],
    { env: { ...process.env, KEYGATE_BINARY: binary } },
  );
} catch (e) {
  failed = true;
  if (e.status === undefined) console.error(e);
} finally {
  rmSync(project, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
