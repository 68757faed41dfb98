import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

// The built index.html begins its addresses with /__base__/, which the server replaces with
// --admin-base-path. Scripts find their chunks relative to themselves.
const placeholder = '/__base__/';

export default defineConfig(({ command }) => ({
  base: command === 'build' ? placeholder : '/',
  plugins: [react(), tailwindcss()],
  experimental: {
    renderBuiltUrl: (file, { hostType }) => (hostType === 'html' ? placeholder + file : { relative: true }),
  },
  build: {
    outDir: '../internal/dashboard/dist',
    emptyOutDir: true,
    target: 'es2022',
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/v1': 'http://127.0.0.1:8081' } },
  test: { environment: 'happy-dom', include: ['src/**/*.test.ts'] },
}));
