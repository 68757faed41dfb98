// Builds the package into dist: the modules, their types, and the types of the API document.
import { execFileSync } from 'node:child_process';
import { copyFileSync, rmSync } from 'node:fs';

const run = (command, ...args) => execFileSync(command, args, { cwd: import.meta.dirname, stdio: 'inherit' });
rmSync(new URL('dist', import.meta.url), { recursive: true, force: true });
run('npm', 'run', '--silent', 'types');
run('npx', '--no-install', 'tsc', '-p', 'tsconfig.json');
copyFileSync(new URL('src/schema.gen.d.ts', import.meta.url), new URL('dist/schema.gen.d.ts', import.meta.url));
