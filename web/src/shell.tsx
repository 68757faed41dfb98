import { Link, Outlet, useRouterState } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, useRef, useState } from 'react';
import { useIncomplete } from './api/hooks';
import { signOut, useAccount, useConnection } from './api/session';
import { setTheme, type Theme, useTheme } from './lib/theme';
import { menu } from './menu';
import { SignIn } from './screens/signin';
import { useShortcuts } from './shortcuts';
import { buttonClass, Failure, IconButton } from './ui/basic';
import { Crumbs } from './ui/crumbs';
import { Dialog } from './ui/dialog';
import { Icon } from './ui/icon';
import { Toasts } from './ui/toast';

const Palette = lazy(() => import('./screens/palette'));
const Help = lazy(() => import('./screens/help'));

// Shell is what is around every screen. When the session ends, the sign-in form covers the screen, which
// keeps what was typed.
export function Shell() {
  const { ended, unreachable } = useConnection();
  const account = useAccount();
  const [narrow, setNarrow] = useState(() => localStorage.getItem('keygate-rail') === 'narrow');
  const [open, setOpen] = useState<'' | 'palette' | 'help'>('');
  const path = useRouterState({ select: (s) => s.location.pathname });
  const [openAt, setOpenAt] = useState<string | null>(null); // the page on which the menu was opened, on narrow screens
  const menuOpen = openAt === path;
  const [stayed, setStayed] = useState<unknown>(null); // why signing out has failed
  const nav = useRef<HTMLElement>(null);
  // The opened menu lies over the page: it takes the focus, and Esc closes it.
  useEffect(() => {
    if (!menuOpen) return;
    const before = document.activeElement;
    nav.current?.querySelector<HTMLElement>('li a')?.focus();
    const onKey = (e: KeyboardEvent) => {
      if (e.key !== 'Escape' || document.querySelector('dialog[open]')) return;
      setOpenAt(null);
      if (before instanceof HTMLElement) before.focus();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [menuOpen]);
  useShortcuts(ended ? null : { palette: () => setOpen('palette'), help: () => setOpen('help') });

  const toggleRail = () => {
    localStorage.setItem('keygate-rail', narrow ? 'wide' : 'narrow');
    setNarrow(!narrow);
  };
  // Until the first response it is not known whether there is a session.
  if (!account && !ended) return unreachable ? <Unreachable /> : null;
  if (!account) return <SignIn />;
  return (
    <div className="flex min-h-dvh bg-bg">
      <a
        href="#content"
        className="sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50 focus:rounded-md focus:bg-raised focus:px-3 focus:py-1.5">
        Skip to the content
      </a>
      <nav
        ref={nav}
        aria-label="Main"
        className={`${menuOpen ? 'fixed inset-y-0 left-0 z-40 flex w-56 shadow-xl' : 'hidden'} flex-col border-r border-line bg-surface md:sticky md:top-0 md:flex md:h-dvh md:shadow-none ${narrow ? 'md:w-13' : 'md:w-50'}`}>
        <Link to="/" className="flex h-12 items-center gap-2 px-4 font-semibold" aria-label="Keygate: overview">
          <Icon name="gateway" className="size-5 text-accent" />
          <span className={narrow ? 'md:hidden' : ''}>Keygate</span>
        </Link>
        <ul className="flex flex-1 flex-col gap-0.5 px-2 py-1">
          {menu.map((p) => (
            <li key={p.to}>
              <Link
                to={p.to}
                search={p.search as never}
                activeOptions={{ exact: p.to === '/', includeSearch: false }}
                title={narrow ? p.label : undefined}
                aria-current={p.also?.some((a) => path === a || path.startsWith(`${a}/`)) ? 'true' : undefined}
                className="flex h-8 items-center gap-2.5 rounded-md px-2.5 text-muted hover:bg-hover hover:text-text aria-[current]:bg-accent-soft aria-[current]:font-medium aria-[current]:text-accent">
                <Icon name={p.icon} />
                <span className={narrow ? 'md:sr-only' : ''}>{p.label}</span>
              </Link>
            </li>
          ))}
        </ul>
        <div className="flex flex-col gap-1 border-t border-line p-2">
          <div className={`min-w-0 px-2.5 py-1 ${narrow ? 'md:hidden' : ''}`}>
            <p className="truncate font-medium" title={account.name}>
              {account.name}
            </p>
            <p className="truncate text-sm text-muted" title={`${account.key.name}: ${account.key.scope}`}>
              {account.key.name} · {account.key.scope}
            </p>
          </div>
          <div className={`flex gap-1 ${narrow ? 'md:flex-col' : ''}`}>
            <ThemeButton />
            <IconButton icon="leave" label="Sign out" onClick={() => void signOut().catch(setStayed)} />
            <IconButton
              icon={narrow ? 'right' : 'left'}
              label={narrow ? 'Widen the menu' : 'Narrow the menu'}
              onClick={toggleRail}
              className="ml-auto hidden md:inline-flex"
            />
          </div>
        </div>
      </nav>
      {menuOpen && (
        <button
          type="button"
          aria-label="Close the menu"
          className="fixed inset-0 z-30 bg-text/30 md:hidden"
          onClick={() => setOpenAt(null)}
        />
      )}
      <div className="flex min-w-0 flex-1 flex-col">
        <header className="sticky top-0 z-20 flex h-12 items-center gap-2 border-b border-line bg-bg px-3 md:px-6">
          <IconButton icon="menu" label="Open the menu" className="md:hidden" onClick={() => setOpenAt(path)} />
          <Crumbs />
          <button
            type="button"
            onClick={() => setOpen('palette')}
            aria-keyshortcuts="Control+K"
            className={`${buttonClass('plain')} ml-auto font-normal text-muted`}>
            <Icon name="search" />
            <span className="max-sm:sr-only">Search or go to</span>
            <kbd aria-hidden="true" className="hidden rounded border border-line px-1 font-sans text-xs sm:inline">
              Ctrl K
            </kbd>
          </button>
          <IconButton icon="help" label="Keyboard shortcuts" onClick={() => setOpen('help')} className="hidden sm:inline-flex" />
        </header>
        {unreachable && (
          <div
            role="alert"
            className="sticky top-12 z-20 flex items-center gap-2 border-b border-line bg-warn-soft px-4 py-2 text-warn md:px-6">
            <Icon name="warn" />
            Keygate does not respond. This page tries again by itself and keeps what you have typed.
          </div>
        )}
        <Incomplete />
        <main id="content" tabIndex={-1} className="min-w-0 flex-1 outline-none">
          <Suspense fallback={null}>
            <Outlet />
          </Suspense>
        </main>
      </div>
      <Suspense fallback={null}>
        {open === 'palette' && <Palette onClose={() => setOpen('')} />}
        {open === 'help' && <Help onClose={() => setOpen('')} />}
      </Suspense>
      {stayed !== null && (
        <Dialog title="You are still signed in" onClose={() => setStayed(null)}>
          <Failure error={stayed} />
        </Dialog>
      )}
      <Toasts />
      {ended && <SignIn over />}
    </div>
  );
}

// Incomplete says that a list or report on the screen lacks the newest records.
function Incomplete() {
  const reason = useIncomplete();
  if (!reason) return null;
  return (
    <div role="status" className="flex items-center gap-2 border-b border-line bg-warn-soft px-4 py-2 text-warn md:px-6">
      <Icon name="warn" />
      Incomplete: {reason}.
    </div>
  );
}

function ThemeButton() {
  const now = useTheme();
  const next: Theme = { system: 'light', light: 'dark', dark: 'system' }[now] as Theme;
  return <IconButton icon="sun" label={`Theme: ${now}. Change to ${next}`} onClick={() => setTheme(next)} />;
}

function Unreachable() {
  return (
    <main className="flex min-h-dvh flex-col items-center justify-center gap-2 p-4 text-center">
      <Icon name="warn" className="size-6 text-warn" />
      <h1 className="text-lg font-semibold">Keygate does not respond</h1>
      <p role="status" className="text-muted">
        This page tries again by itself.
      </p>
    </main>
  );
}
