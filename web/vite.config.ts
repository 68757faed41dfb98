import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// In the built index.html the server replaces /__base__/ with --admin-base-path, and __build__ with a
// hash of all files. Scripts find their chunks relative to themselves, so that the hash is in no file,
// and a change of the source rewrites only the files that it is built into.
const base = '/__base__/';
const inPage = (file: string) => base + file.replace('assets/', 'assets/__build__/');

// fileName names a script after the module that it is loaded for, or else after the last of its modules:
// screens-keys-list.js.
function fileName({ name, facadeModuleId, moduleIds }: { name: string; facadeModuleId?: string | null; moduleIds: string[] }): string {
  const module = /\/src\/([^.]+)\.tsx?$/.exec(facadeModuleId ?? moduleIds.at(-1) ?? '');
  return `assets/${module?.[1]?.replaceAll('/', '-') ?? name}.js`;
}

export default defineConfig(({ command }) => ({
  base: command === 'build' ? base : '/',
  plugins: [react(), tailwindcss()],
  experimental: { renderBuiltUrl: (file, { hostType }) => (hostType === 'html' ? inPage(file) : { relative: true }) },
  build: {
    outDir: '../internal/dashboard/dist',
    emptyOutDir: true,
    target: 'es2022',
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: { entryFileNames: fileName, chunkFileNames: fileName, assetFileNames: 'assets/[name].[ext]', minifyInternalExports: false },
    },
  },
  // The server refuses a sign-in whose Origin is not its Host, so the proxy keeps the Host.
  server: {
    proxy: Object.fromEntries(['/v1', '/docs.json'].map((path) => [path, { target: 'http://127.0.0.1:8081', changeOrigin: false }])),
  },
  test: { environment: 'happy-dom', include: ['src/**/*.test.ts'], testTimeout: 60_000 },
}));
