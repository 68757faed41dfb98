import { useQueries } from '@tanstack/react-query';
import { api, type Schemas } from './client';
import type { Filter } from '../lib/filter';
import { useList } from './hooks';
import { useRefusal } from './session';

export type Plan = Schemas['Plan'];

// usePlans returns the newest 100 plans, for names and choices, and whether there are more.
export function usePlans() {
  const refused = useRefusal('read', 'plans');
  const query = useList('/v1/plans', { query: { limit: 100 } }, { enabled: !refused, staleTime: 30_000 });
  const plans = query.data?.data.data ?? [];
  return { plans, more: Boolean(query.data?.data.next_cursor), nameOf: (id: string) => plans.find((p) => p.plan_id === id)?.name ?? id };
}

// planFilter is the filter of a list by a plan.
export const planFilter = (plans: Plan[], nameOf: (id: string) => string): Filter => ({
  name: 'plan_id',
  label: 'Plan',
  values: plans.map((p) => ({ value: p.plan_id, label: p.name })),
  other: /^plan_[0-9a-z]{26}$/,
  shown: nameOf,
});

// usePlanRecords reads plans by their identifiers. Those that cannot be read are left out.
export function usePlanRecords(ids: (string | null | undefined)[]): { plans: Map<string, Plan>; pending: boolean } {
  const refused = useRefusal('read', 'plans');
  const wanted = [...new Set(ids.filter((id): id is string => Boolean(id)))];
  const read = useQueries({
    queries: wanted.map((plan_id) => ({
      queryKey: ['/v1/plans/{plan_id}', { plan_id }, {}],
      queryFn: ({ signal }: { signal: AbortSignal }) => api.get('/v1/plans/{plan_id}', { path: { plan_id }, signal }),
      enabled: !refused,
      retry: false,
    })),
  });
  return {
    plans: new Map(wanted.flatMap((id, i) => (read[i]?.data ? [[id, read[i].data.data] as const] : []))),
    pending: !refused && read.some((r) => r.isPending),
  };
}
