import { useState } from 'react';
import { useRecord } from '../../api/hooks';
import { quote } from '../../lib/shell';

// A Subject is whom quotas count: an owner, with its external identifier if that is known, or a key.
export interface Subject {
  kind: 'owner' | 'key';
  id: string;
  external_id?: string;
}

// pathOf returns the parameters of the calls for a subject.
export const pathOf = (s: Subject): Record<string, string> => (s.kind === 'owner' ? { owner_id: s.id } : { key_id: s.id });

// resourceOf returns what a scope must allow for a subject.
export const resourceOf = (s: Subject): string => `${s.kind}s/${s.id}`;

// flagOf names a subject for the command line.
export const flagOf = (s: Subject): string => `--${s.kind} ${quote(s.external_id ?? s.id)}`;

export const mostGrants = 100; // of a page
const fewGrants = 5;

// useQuotas reads what a subject has used of its quotas, and what was granted to it; not before there is one.
export function useQuotas(of: Subject, there: boolean) {
  const [all, setAll] = useState(false); // of the grants
  const usage = useRecord(
    of.kind === 'owner' ? '/v1/owners/{owner_id}/usage' : '/v1/keys/{key_id}/usage',
    { path: pathOf(of) },
    { refetchInterval: 5_000, retry: false, enabled: there },
  );
  const grants = useRecord(
    of.kind === 'owner' ? '/v1/owners/{owner_id}/grants' : '/v1/keys/{key_id}/grants',
    { path: pathOf(of), query: { limit: all ? mostGrants : fewGrants } },
    { refetchInterval: 15_000, retry: false, enabled: there, placeholderData: (old) => old },
  );
  return { of, usage, grants, ready: !usage.isPending && !grants.isPending, all, showAll: () => setAll(true) };
}
