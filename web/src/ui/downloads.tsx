import { type KeyboardEvent, useId, useRef, useState } from 'react';
import { Button } from './basic';
import { Icon } from './icon';

export interface Download {
  label: string;
  note: string; // what the file is for
  href: string;
  file: string; // its name
}

// Downloads is a button that opens a list of files to download. why says why there is none now. The arrow keys move in
// the list, and Esc closes it.
export function Downloads({ label, files, why }: { label: string; files: Download[]; why?: string | null }) {
  const [open, setOpen] = useState(false);
  const list = useId();
  const root = useRef<HTMLDivElement>(null);
  const focus = (n: number) => {
    const links = root.current?.querySelectorAll('a') ?? [];
    links[(n + links.length) % links.length]?.focus();
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === 'Escape' && open) {
      e.stopPropagation();
      setOpen(false);
      root.current?.querySelector('button')?.focus();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step || why) return;
    e.preventDefault();
    const at = [...(root.current?.querySelectorAll('a') ?? [])].findIndex((a) => a === document.activeElement);
    setOpen(true);
    requestAnimationFrame(() => focus(at < 0 ? (step > 0 ? 0 : -1) : at + step)); // after the list is shown
  };
  return (
    <div
      ref={root}
      className="relative"
      onKeyDown={onKeyDown}
      onBlur={(e) => {
        if (!e.currentTarget.contains(e.relatedTarget)) setOpen(false);
      }}>
      <Button aria-expanded={open} aria-controls={open ? list : undefined} why={why} onClick={() => setOpen(!open)}>
        {label}
        <Icon name="down" />
      </Button>
      {open && (
        <ul
          id={list}
          aria-label={label}
          className="absolute top-full right-0 z-30 mt-1 w-64 rounded-md border border-line bg-raised py-1 shadow-lg">
          {files.map((f) => (
            <li key={f.file}>
              <a
                href={f.href}
                download={f.file}
                className="block px-3 py-1.5 -outline-offset-2 hover:bg-hover focus:bg-hover"
                onClick={() => setOpen(false)}>
                {f.label}
                <span className="block text-sm text-muted">{f.note}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
