import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'light' | 'dark';
const name = 'keygate-theme';

export function theme(): Theme {
  const kept = localStorage.getItem(name);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export function setTheme(t: Theme) {
  if (t === 'system') localStorage.removeItem(name);
  else localStorage.setItem(name, t);
  applyTheme();
}

// useTheme is the theme that is chosen, wherever it was chosen.
export function useTheme(): Theme {
  return useSyncExternalStore((f) => {
    window.addEventListener('keygate-theme', f);
    return () => window.removeEventListener('keygate-theme', f);
  }, theme);
}

export function applyTheme() {
  const t = theme();
  if (t === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = t;
  window.dispatchEvent(new Event('keygate-theme'));
}
