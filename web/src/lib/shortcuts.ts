import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

// The letters after "g" that go to a place.
export const goTo: Record<string, string> = {
  o: '/',
  g: '/gateways',
  r: '/routes',
  k: '/keys',
  q: '/requests',
  w: '/webhooks',
  a: '/audit',
  s: '/settings',
};

const typing = (t: EventTarget | null) => t instanceof HTMLElement && t.matches('input, textarea, select, [contenteditable]');

// useShortcuts listens to the keys of the whole page; null turns them off.
export function useShortcuts(actions: { palette: () => void; help: () => void } | null) {
  const navigate = useNavigate();
  const current = useRef(actions);
  useEffect(() => {
    current.current = actions;
  });
  useEffect(() => {
    let pressedG = 0;
    const onKey = (e: KeyboardEvent) => {
      const a = current.current;
      if (!a) return;
      if ((e.ctrlKey || e.metaKey) && !e.altKey && e.key.toLowerCase() === 'k') {
        e.preventDefault();
        if (!document.querySelector('dialog[open]')) a.palette();
        return;
      }
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || document.querySelector('dialog[open]')) return;
      if (e.key === '/') {
        const box = document.querySelector<HTMLElement>('main [data-search]');
        e.preventDefault();
        if (box) box.focus();
        else a.palette();
      } else if (e.key === '?') {
        e.preventDefault();
        a.help();
      } else if (e.key === 'g') {
        pressedG = e.timeStamp;
        return;
      } else if (pressedG && e.timeStamp - pressedG < 1500 && goTo[e.key]) {
        e.preventDefault();
        void navigate({ to: goTo[e.key] as '/' });
      }
      pressedG = 0;
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [navigate]);
}
