import { Link, useRouterState } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';

interface Tab {
  to: string; // a path of the router, whose parameters params has
  label: string;
  below?: boolean; // also current on the screens below it
}

// Tabs leads to the screens that belong together. Where they do not fit in one line they move sideways, without a
// scrollbar: they fade out at the end of the line, and the current one is in sight.
export function Tabs({ label, tabs, params = {} }: { label: string; tabs: readonly Tab[]; params?: Record<string, string> }) {
  const path = useRouterState({ select: (s) => s.location.pathname });
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const ul = list.current;
    const current = ul?.querySelector<HTMLElement>('[aria-current]');
    if (!ul || !current || !path) return;
    const [a, b] = [ul.getBoundingClientRect(), current.getBoundingClientRect()];
    if (b.left < a.left || b.right > a.right) ul.scrollLeft += b.left - a.left - (a.width - b.width) / 2;
  }, [path]);
  return (
    <nav aria-label={label} className="-mt-2 border-b border-line">
      <ul
        ref={list}
        className="-mb-px flex gap-4 overflow-x-auto [scrollbar-width:none] max-sm:[mask-image:linear-gradient(to_right,black_calc(100%-2rem),transparent)] max-sm:pr-8 sm:gap-5">
        {tabs.map((t) => (
          <li key={t.to}>
            <Link
              to={t.to as '/'}
              params={params as never}
              activeOptions={{ exact: !t.below, includeSearch: false }}
              className="flex h-9 items-center border-b-2 border-transparent whitespace-nowrap text-muted -outline-offset-2 hover:text-text aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-text">
              {t.label}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}
