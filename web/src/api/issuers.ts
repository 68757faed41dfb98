import type { Schemas } from './client';
import { useList } from './hooks';
import { useRefusal } from './session';

export type Issuer = Schemas['Issuer'];

// useIssuers returns the newest 100 issuers, for names and choices, whether there are more, and why they cannot be read.
export function useIssuers() {
  const refused = useRefusal('read', 'issuers');
  const query = useList('/v1/issuers', { query: { limit: 100 } }, { enabled: !refused, staleTime: 30_000 });
  return { issuers: query.data?.data.data ?? [], more: Boolean(query.data?.data.next_cursor), loaded: Boolean(query.data), refused };
}
