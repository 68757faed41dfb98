import { Link } from '@tanstack/react-router';
import { useCourse } from '../../api/course';
import { usePlans } from '../../api/plans';
import { type CourseSpan, isCourseSpan, spans, stepWords } from '../../lib/course';
import { count, short } from '../../lib/format';
import { exactly, isBytes, meterSuggestions, meterWords, unitsOf } from '../../lib/usage';
import { useUrl } from '../../lib/url';
import { Empty, Failure, Panel, Skeleton } from '../../ui/basic';
import { Chart, ChartSkeleton } from '../../ui/chart';
import { inputClass } from '../../ui/form';
import { Segments } from '../../ui/segments';

const names: Record<CourseSpan, string> = { '24h': '24 h', '7d': '7 days', '30d': '30 days' };

// OwnerCourse shows what an owner has used of a meter over time. counted are the meters of its quotas, which are offered first.
export function OwnerCourse({ ownerId, counted }: { ownerId: string; counted: string[] }) {
  const [url, change] = useUrl<'meter' | 'span'>();
  const { plans } = usePlans();
  const meters = [...new Set([...counted, ...meterSuggestions(plans), ...(url.meter ? [url.meter] : [])])];
  const meter = url.meter ?? meters[0] ?? 'requests';
  const span = isCourseSpan(url.span) ? url.span : '24h';
  const query = useCourse(ownerId, meter, span);
  const course = query.data;
  const words = meterWords(meter);
  return (
    <Panel
      title="Usage over time"
      actions={
        <>
          <select
            aria-label="Meter"
            className={`${inputClass} w-28! sm:w-36!`}
            value={meter}
            onChange={(e) => change({ meter: e.target.value === meters[0] ? undefined : e.target.value })}>
            {meters.map((m) => (
              <option key={m} value={m}>
                {meterWords(m)}
              </option>
            ))}
          </select>
          <Segments
            label="Time"
            value={span}
            options={(Object.keys(spans) as CourseSpan[]).map((value) => ({ value, label: names[value] }))}
            onChange={(s) => change({ span: s === '24h' ? undefined : s })}
          />
        </>
      }>
      <div className="flex flex-col gap-4">
        {query.error && <Failure error={query.error} retry={() => void query.refetch()} />}
        {course === null ? (
          <Empty icon="usage" title="There are too many usage records to draw">
            Choose a shorter time, or export the{' '}
            <Link to="/usage-records" search={{ owner_id: ownerId, meter }} className="link">
              usage records
            </Link>
            .
          </Empty>
        ) : (
          !(query.error && !course) && (
            <>
              <dl className="flex flex-wrap gap-x-8 gap-y-2">
                <div>
                  <dt className="text-muted">{words.charAt(0).toUpperCase() + words.slice(1)}</dt>
                  <dd className="text-xl font-semibold" title={course && isBytes(meter) ? exactly(meter, course.total) : undefined}>
                    {course ? unitsOf(meter, course.total) : <Skeleton className="h-4 w-12" />}
                  </dd>
                </div>
                {meter !== 'requests' && (
                  <div>
                    <dt className="text-muted">Requests that used some</dt>
                    <dd className="text-xl font-semibold">{course ? count(course.requests) : <Skeleton className="h-4 w-12" />}</dd>
                  </div>
                )}
              </dl>
              {course ? (
                <Chart
                  label={`Usage of ${words}`}
                  unit={`${words} by ${stepWords(span)}`}
                  none="Nothing was used in this time"
                  times={course.starts.map((t) => t / 1000)}
                  whole={!isBytes(meter)}
                  format={(v) => (isBytes(meter) ? unitsOf(meter, Math.round(v)) : short(v))}
                  exact={(v) => exactly(meter, v)}
                  series={[{ label: words, color: '--chart-1', values: course.units.map(Number) }]}
                />
              ) : (
                <ChartSkeleton />
              )}
            </>
          )
        )}
      </div>
    </Panel>
  );
}
