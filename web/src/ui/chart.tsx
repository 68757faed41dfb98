import { lazy, Suspense, useState } from 'react';
import { minuteOf, zone } from '../lib/time';
import { Button, Skeleton } from './basic';
import { Dialog } from './dialog';
import type { PlotProps } from './plot';

interface ChartProps extends Omit<PlotProps, 'height'> {
  label: string; // what the chart shows, for screen readers
  unit: string; // of its values, such as "requests per minute"
  exact?: (value: number) => string; // in the table, if format is shorter
  none?: string; // what to say if all values are 0
}

const Plot = lazy(() => import('./plot'));

// Chart draws lines over time. Its numbers are also in a table, for screen readers and for those who want the exact
// ones; it has the times of the chart, in the browser's zone.
export function Chart(props: ChartProps) {
  const { label, unit, times, series, format, exact = format, none = 'No requests in this time' } = props;
  const [open, setOpen] = useState(false);
  const nothing = series.every((s) => s.values.every((v) => !v));
  const head = unit.charAt(0).toUpperCase() + unit.slice(1);
  return (
    <figure aria-label={label} className="flex flex-col gap-2">
      <p className="text-sm text-muted">{head}</p>
      <div className="h-45">
        {nothing ? (
          <p className="flex h-full items-center justify-center rounded-md border border-dashed border-line text-muted">{none}</p>
        ) : (
          <Suspense fallback={<Skeleton className="h-full w-full" />}>
            <Plot key={series.map((s) => s.label + s.color).join('|')} {...props} height={180} />
          </Suspense>
        )}
      </div>
      <figcaption className="flex flex-wrap items-center gap-x-4 gap-y-1 text-sm text-muted">
        {series.map((s) => (
          <span key={s.label} className="inline-flex items-center gap-1.5">
            <svg aria-hidden="true" width="10" height="10">
              <rect width="10" height="10" rx="2" fill={`var(${s.color})`} />
            </svg>
            {s.label}
          </span>
        ))}
        <Button size="sm" kind="quiet" className="ml-auto" onClick={() => setOpen(true)}>
          Numbers
        </Button>
      </figcaption>
      {open && (
        <Dialog title={label} onClose={() => setOpen(false)}>
          <table aria-label={`${label}: numbers`} className="w-full">
            <caption className="mb-2 text-left text-muted">{head}</caption>
            <thead>
              <tr className="border-b border-line text-sm whitespace-nowrap text-muted">
                <th scope="col" className="pr-4 pb-1 text-left font-medium">
                  Time{times[0] !== undefined && `, ${zone(times[0])}`}
                </th>
                {series.map((s) => (
                  <th key={s.label} scope="col" className="pb-1 pl-4 text-right font-medium">
                    {s.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times.map((t, i) => (
                <tr key={t}>
                  <td className="pr-4 whitespace-nowrap">{minuteOf(t)}</td>
                  {series.map((s) => (
                    <td key={s.label} className="pl-4 text-right">
                      {s.values[i] == null ? '–' : exact(s.values[i])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Dialog>
      )}
    </figure>
  );
}

// ChartSkeleton has the size of a chart with its legend in one line.
export function ChartSkeleton() {
  return (
    <div className="flex flex-col gap-2">
      <p className="text-sm" aria-hidden="true">
        {'\u00a0'}
      </p>
      <div className="h-45">
        <Skeleton className="h-full w-full" />
      </div>
      <p className="h-6 text-sm" aria-hidden="true">
        {'\u00a0'}
      </p>
    </div>
  );
}
