import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useCourse } from '../../api/course';
import { usePlans } from '../../api/plans';
import { courseOf, type CourseSpan, isCourseSpan, spans, startsOf, stepWords, windowCourse, windowStart } from '../../lib/course';
import { count, short } from '../../lib/format';
import { spellQuota, type Usage, unitsIn, wholeOf } from '../../lib/quota';
import { exactly, isBytes, meterSuggestions, meterWords, unitsOf } from '../../lib/usage';
import { useUrl } from '../../lib/url';
import { Empty, Failure, Panel, Skeleton } from '../../ui/basic';
import { Chart, ChartSkeleton } from '../../ui/chart';
import { inputClass } from '../../ui/form';
import { Segments } from '../../ui/segments';

const names: Record<CourseSpan, string> = { '24h': '24 h', '7d': '7 days', '30d': '30 days' };

const nameOf = (u: Usage): string => `${u.plan}.${u.limit}`;

// A choice of what is shown: a quota, which is named by its plan and itself, or a meter.
const ofQuota = 'quota:';

// OwnerCourse shows what an owner has used over time: of a meter, or of a quota in its window. The meters of the quotas are offered
// first.
export function OwnerCourse({ ownerId, quotas }: { ownerId: string; quotas: Usage[] }) {
  const [url, change] = useUrl<'meter' | 'span' | 'quota'>();
  const { plans } = usePlans();
  const meters = [...new Set([...quotas.map((u) => u.meter), ...meterSuggestions(plans), ...(url.meter ? [url.meter] : [])])];
  const meter = url.meter ?? meters[0] ?? 'requests';
  const quota = quotas.find((u) => nameOf(u) === url.quota);
  const span = isCourseSpan(url.span) ? url.span : '24h';
  const choose = (value: string) =>
    value.startsWith(ofQuota)
      ? change({ quota: value.slice(ofQuota.length), meter: undefined })
      : change({ quota: undefined, meter: value === meters[0] ? undefined : value });
  return (
    <Panel
      title="Usage over time"
      actions={
        <>
          <select
            aria-label="Meter or quota"
            className={`${inputClass} w-32! sm:w-44!`}
            value={quota ? ofQuota + nameOf(quota) : meter}
            onChange={(e) => choose(e.target.value)}>
            <optgroup label="Meters">
              {meters.map((m) => (
                <option key={m} value={m}>
                  {meterWords(m)}
                </option>
              ))}
            </optgroup>
            {quotas.length > 0 && (
              <optgroup label="Quotas, in their window">
                {quotas.map((u) => (
                  <option key={nameOf(u)} value={ofQuota + nameOf(u)}>
                    {nameOf(u)}
                  </option>
                ))}
              </optgroup>
            )}
          </select>
          {!quota && (
            <Segments
              label="Time"
              value={span}
              options={(Object.keys(spans) as CourseSpan[]).map((value) => ({ value, label: names[value] }))}
              onChange={(s) => change({ span: s === '24h' ? undefined : s })}
            />
          )}
        </>
      }>
      <div className="flex flex-col gap-4">
        {quota ? (
          <QuotaCourse key={nameOf(quota)} ownerId={ownerId} of={quota} />
        ) : (
          <MeterCourse ownerId={ownerId} meter={meter} span={span} />
        )}
      </div>
    </Panel>
  );
}

type Query = ReturnType<typeof useCourse>;

// Read shows what was read, or why nothing was.
function Read({ query, records, children }: { query: Query; records: { owner_id: string; meter: string }; children: ReactNode }) {
  return (
    <>
      {query.error && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data?.records === null ? (
        <Empty icon="usage" title="There are too many usage records to draw">
          Choose a shorter time, or export the{' '}
          <Link to="/usage-records" search={records} className="link">
            usage records
          </Link>
          .
        </Empty>
      ) : (
        !(query.error && !query.data) && children
      )}
    </>
  );
}

// Figure is a number above a chart.
const Figure = ({ title, exact, children }: { title: string; exact?: string; children: ReactNode }) => (
  <div>
    <dt className="text-muted">{title}</dt>
    <dd className="text-xl font-semibold" title={exact}>
      {children}
    </dd>
  </div>
);

const waiting = <Skeleton className="h-4 w-12" />;

// MeterCourse shows what an owner has used of a meter.
function MeterCourse({ ownerId, meter, span }: { ownerId: string; meter: string; span: CourseSpan }) {
  const of = { owner_id: ownerId, meter };
  const query = useCourse(of, span, (now) => startsOf(span, now)[0] ?? now, { poll: span === '24h' });
  const course = query.data?.records && courseOf(query.data.records, span, query.data.now);
  const words = meterWords(meter);
  return (
    <Read query={query} records={of}>
      <dl className="flex flex-wrap gap-x-8 gap-y-2">
        <Figure
          title={words.charAt(0).toUpperCase() + words.slice(1)}
          exact={course && isBytes(meter) ? exactly(meter, course.total) : undefined}>
          {course ? unitsOf(meter, course.total) : waiting}
        </Figure>
        {meter !== 'requests' && <Figure title="Requests that used some">{course ? count(course.requests) : waiting}</Figure>}
      </dl>
      {course ? (
        <Chart
          label={`Usage of ${words}`}
          unit={`${words} by ${stepWords(span)}`}
          none="Nothing was used in this time"
          times={course.starts.map((t) => t / 1000)}
          {...unitsOfChart(meter)}
          series={[{ label: words, color: '--chart-1', values: course.units.map(Number) }]}
        />
      ) : (
        <ChartSkeleton />
      )}
    </Read>
  );
}

// unitsOfChart says how a chart shows units of a meter.
const unitsOfChart = (meter: string) => ({
  whole: !isBytes(meter),
  format: (v: number) => (isBytes(meter) ? unitsOf(meter, Math.round(v)) : short(v)),
  exact: (v: number) => exactly(meter, v),
});

// QuotaCourse shows what an owner has used of a quota since its window began, beside all it may use and what it warns at.
function QuotaCourse({ ownerId, of: u }: { ownerId: string; of: Usage }) {
  const { plans } = usePlans();
  const limit = plans.find((p) => p.name === u.plan)?.limits.find((l) => l.name === u.limit);
  const counted = { owner_id: ownerId, meter: u.meter, ...(limit?.gateway_id && { gateway_id: limit.gateway_id }) };
  const drawn = limit && limit.routes.length === 0;
  const query = useCourse(counted, nameOf(u) + u.window_start, (now) => windowStart(u, now), { poll: true, enabled: drawn });
  const course = query.data?.records && windowCourse(query.data.records, u, query.data.now);
  const show = unitsIn(u);
  const whole = Number(wholeOf(u));
  const [first] = limit?.warn_at ?? [];
  return (
    <Read query={query} records={counted}>
      <dl className="flex flex-wrap gap-x-8 gap-y-2">
        <Figure
          title={u.window_end ? 'Used in this window' : 'Used in all'}
          exact={isBytes(u.meter) ? exactly(u.meter, u.used) : undefined}>
          {show(u.used)}
        </Figure>
        <Figure title="Of" exact={isBytes(u.meter) ? exactly(u.meter, wholeOf(u)) : undefined}>
          {show(wholeOf(u))}
        </Figure>
      </dl>
      {limit?.quota && <p className="text-sm text-muted">{spellQuota(limit.quota, u.meter)}</p>}
      {!drawn ? (
        <Empty icon="usage" title="This quota has no course">
          {limit
            ? 'It counts only some routes of a gateway, which usage records do not name by their paths.'
            : 'Its plan could not be read.'}
        </Empty>
      ) : course ? (
        <Chart
          label={`Course of ${nameOf(u)}`}
          unit={`${meterWords(u.meter)} used so far`}
          times={course.times.map((t) => t / 1000)}
          {...unitsOfChart(u.meter)}
          series={[
            { label: 'used', color: '--chart-1', values: course.used },
            ...(first === undefined
              ? []
              : [{ label: `warns at ${first} %`, color: '--chart-2', values: course.times.map(() => (whole * Number(first)) / 100) }]),
            { label: 'limit', color: '--chart-4', values: course.times.map(() => whole) },
          ]}
        />
      ) : (
        <ChartSkeleton />
      )}
    </Read>
  );
}
