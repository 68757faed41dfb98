import { keepPreviousData, QueryClient, useQuery, type UseQueryOptions } from '@tanstack/react-query';
import { useEffect, useSyncExternalStore } from 'react';
import { type Answer, api, ApiError, type CallOptions, type GetPath, type Got } from './client';

// While reads are held, what is shown is not read again when the window comes to the front.
let held = false;

// useHold holds such reads while on is set.
export function useHold(on: boolean) {
  useEffect(() => {
    held = on;
    return () => {
      held = false;
    };
  }, [on]);
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      gcTime: 60_000,
      refetchOnWindowFocus: () => !held,
      retry: (count, error) => error instanceof ApiError && (error.status === 0 || error.status >= 500) && count < 2,
    },
    mutations: { retry: false },
  },
});

type Options<T> = Omit<UseQueryOptions<Answer<T>, ApiError>, 'queryKey' | 'queryFn'>;

// useRecord reads one record, with its ETag.
export function useRecord<P extends GetPath>(path: P, o: CallOptions = {}, options: Options<Got<P>> = {}) {
  return useQuery<Answer<Got<P>>, ApiError>({
    queryKey: [path, o.path ?? {}, o.query ?? {}],
    queryFn: ({ signal }) => api.get(path, { ...o, signal }),
    ...options,
  });
}

// useList reads one page of a list. While another page loads, the last one stays.
export function useList<P extends GetPath>(path: P, o: CallOptions = {}, options: Options<Got<P>> = {}) {
  return useRecord(path, o, { placeholderData: keepPreviousData, ...options });
}

// useIncomplete returns why what is on the screen lacks the newest records; '' if it does not.
export function useIncomplete() {
  return useSyncExternalStore((on) => queries.getQueryCache().subscribe(on), missing);
}

function missing(): string {
  for (const q of queries.getQueryCache().findAll({ type: 'active' })) {
    const body: unknown = (q.state.data as Answer<unknown> | undefined)?.data;
    if (typeof body === 'object' && body !== null && 'incomplete_reason' in body && typeof body.incomplete_reason === 'string')
      return body.incomplete_reason;
  }
  return '';
}

// warn keeps what the server warned of when it last created or changed a record, for useWarnings.
export function warn(id: string, texts: string[] = []) {
  queries.setQueryData(['warnings', id], texts);
}

// useWarnings returns what the server warned of when this page last created or changed a record.
export function useWarnings(id: string): string[] {
  return useQuery<string[]>({ queryKey: ['warnings', id], queryFn: () => [], enabled: false, gcTime: Infinity }).data ?? [];
}

// deleted takes what was deleted out of the pages of a list that were read, so that nothing asks for it before they are read again.
export function deleted<T>(list: string, path: CallOptions['path'], is: (row: T) => boolean) {
  queries.setQueriesData<Answer<{ data: T[] }>>(
    { queryKey: [list, path] },
    (page) => page && { ...page, data: { ...page.data, data: page.data.data.filter((row) => !is(row)) } },
  );
}

// changed makes every query read again whose path begins with one of the prefixes.
export function changed(...prefixes: string[]) {
  return queries.invalidateQueries({
    predicate: (q) => typeof q.queryKey[0] === 'string' && prefixes.some((p) => (q.queryKey[0] as string).startsWith(p)),
  });
}
