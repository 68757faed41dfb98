import { useNavigate, useRouterState } from '@tanstack/react-router';
import { useCallback, useMemo } from 'react';
import { parseSearch, type Search } from './search';

// useUrl returns the search parameters of the page and a function that changes some of them; undefined
// removes one. A change goes to the first page of a list, and makes an entry of the history unless
// replace is set.
export function useUrl<K extends string>(): [Search<K>, (changes: Search<K | 'cursor'>, replace?: boolean) => void] {
  const text = useRouterState({ select: (s) => s.location.searchStr });
  const search = useMemo(() => parseSearch(text) as Search<K>, [text]);
  const navigate = useNavigate();
  const change = useCallback(
    (changes: Search<K | 'cursor'>, replace = false) => {
      void navigate({
        to: '.',
        search: ((old: Record<string, string>) => ({ ...old, cursor: undefined, ...changes })) as never,
        replace,
        resetScroll: false,
      });
    },
    [navigate],
  );
  return [search, change];
}

// host is a URL without its scheme and query: what tells endpoints apart in a narrow column.
export function host(url: string): string {
  try {
    const { host: name, pathname } = new URL(url);
    return pathname === '/' ? name : name + pathname;
  } catch {
    return url;
  }
}
