import { lazy, Suspense } from 'react';
import { Skeleton } from './basic';
import type { PlotProps } from './plot';

interface ChartProps extends Omit<PlotProps, 'height'> {
  label: string; // what the chart shows, for screen readers
  height?: number;
}

const Plot = lazy(() => import('./plot'));

// Chart draws lines over time. Its numbers are also in a table, which screen readers and those who want
// the exact ones can open.
export function Chart(props: ChartProps) {
  const { label, times, series, format, height = 180 } = props;
  return (
    <figure aria-label={label} className="flex flex-col gap-2">
      <div className={heights[height] ?? 'h-45'}>
        <Suspense fallback={<Skeleton className="h-full w-full" />}>
          <Plot key={series.map((s) => s.label + s.color).join('|')} {...props} height={height} />
        </Suspense>
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
        <details className="ml-auto">
          <summary>Numbers</summary>
          <div tabIndex={0} role="region" aria-label={`${label}: numbers`} className="max-h-60 overflow-auto">
            <table className="w-full text-text">
              <thead>
                <tr className="text-left">
                  <th scope="col" className="pr-4 font-medium">
                    Time
                  </th>
                  {series.map((s) => (
                    <th key={s.label} scope="col" className="px-2 text-right font-medium">
                      {s.label}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {times.map((t, i) => (
                  <tr key={t}>
                    <td className="pr-4 whitespace-nowrap">{new Date(t * 1000).toISOString().slice(0, 16).replace('T', ' ')}</td>
                    {series.map((s) => (
                      <td key={s.label} className="px-2 text-right">
                        {s.values[i] == null ? '–' : format(s.values[i])}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      </figcaption>
    </figure>
  );
}

// ChartSkeleton has the size of a chart with its legend in one line.
export function ChartSkeleton({ height = 180 }: { height?: number }) {
  return (
    <div className="flex flex-col gap-2">
      <div className={heights[height] ?? 'h-45'}>
        <Skeleton className="h-full w-full" />
      </div>
      <p className="text-sm" aria-hidden="true">
        {'\u00a0'}
      </p>
    </div>
  );
}

const heights: Record<number, string> = { 120: 'h-30', 140: 'h-35', 160: 'h-40', 180: 'h-45', 200: 'h-50', 220: 'h-55' };
