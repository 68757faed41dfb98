import { expect, test } from 'vitest';

const sources = import.meta.glob<string>('./**/*.{ts,tsx}', { query: '?raw', import: 'default', eager: true });

// The modules that each module imports, also those that it loads later and those of which it takes only types.
const imports = new Map(
  Object.entries(sources).map(([file, text]) => {
    const paths = [...text.matchAll(/(?:from |import\(|import )'(\.[^']*)'/g)].map((m) => new URL(m[1]!, `file:///${file}`).pathname);
    return [file.slice(1), paths.flatMap((p) => [`${p}.ts`, `${p}.tsx`]).filter((p) => `.${p}` in sources)];
  }),
);

// circle returns a circle of imports that is reached from the last module of path, or null.
function circle(path: string[], done: Set<string>): string[] | null {
  const last = path.at(-1)!;
  if (path.indexOf(last) < path.length - 1) return path.slice(path.indexOf(last));
  if (done.has(last)) return null;
  for (const next of imports.get(last) ?? []) {
    const found = circle([...path, next], done);
    if (found) return found;
  }
  done.add(last);
  return null;
}

// Guarantee: no module imports itself by way of others.
test('imports have no circle', () => {
  expect(imports.get('/routes.tsx')).toContain('/screens/keys/list.tsx');
  const done = new Set<string>();
  expect([...imports.keys()].map((file) => circle([file], done)).find(Boolean)).toBeUndefined();
});
