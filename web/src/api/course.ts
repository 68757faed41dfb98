import { useQuery } from '@tanstack/react-query';
import { type CourseSpan, courseOf, type Course, startsOf } from '../lib/course';
import type { UsageRecord } from '../lib/usage';
import { api, type ApiError, serverNow } from './client';

const mostPages = 20; // of each state, with 100 records each

// useCourse reads what an owner has used of a meter over time. It is null if there are too many records to add up.
export function useCourse(ownerId: string, meter: string, span: CourseSpan) {
  return useQuery<Course | null, ApiError>({
    queryKey: ['/v1/usage-records', 'course', ownerId, meter, span],
    queryFn: ({ signal }) => read(ownerId, meter, span, signal),
    refetchInterval: span === '24h' ? 30_000 : false,
    staleTime: 30_000,
    retry: false,
  });
}

// read reads open records first: one that becomes final meanwhile is read twice, and none is missed.
async function read(owner_id: string, meter: string, span: CourseSpan, signal: AbortSignal): Promise<Course | null> {
  const now = serverNow();
  const since = new Date(startsOf(span, now)[0] ?? now).toISOString();
  const records: UsageRecord[] = [];
  for (const state of ['open', 'final'] as const) {
    let cursor: string | undefined;
    for (let page = 0; page === 0 || cursor; page++) {
      if (page === mostPages) return null;
      const { data } = await api.get('/v1/usage-records', { query: { owner_id, meter, since, state, limit: 100, cursor }, signal });
      records.push(...data.data);
      cursor = data.next_cursor ?? undefined;
    }
  }
  return courseOf(records, span, now);
}
