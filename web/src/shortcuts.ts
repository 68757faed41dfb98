import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
import { menu } from './menu';

const typing = (t: EventTarget | null) => t instanceof HTMLElement && t.matches('input, textarea, select, [contenteditable]');

// useShortcuts listens to the keys of the whole page; null turns them off.
export function useShortcuts(actions: { palette: () => void; help: () => void } | null) {
  const navigate = useNavigate();
  const current = useRef(actions);
  useEffect(() => {
    current.current = actions;
  });
  useEffect(() => {
    let pressedG = -Infinity;
    const onKey = (e: KeyboardEvent) => {
      const a = current.current;
      if (!a) return;
      if ((e.ctrlKey || e.metaKey) && !e.altKey && e.key.toLowerCase() === 'k') {
        e.preventDefault();
        if (!document.querySelector('dialog[open]')) a.palette();
        return;
      }
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || document.querySelector('dialog[open]')) return;
      const item = e.timeStamp - pressedG < 1500 ? menu.find((i) => i.key === e.key) : undefined;
      if (item) {
        e.preventDefault();
        void navigate({ to: item.to as '/', search: (item.search ?? {}) as never });
      } else if (e.key === '/') {
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
      }
      pressedG = -Infinity;
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [navigate]);
}
