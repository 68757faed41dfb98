import { niceTop } from '../../lib/canary';

// A Mark is the value of a side in a step, with its bounds if it has some.
interface Mark {
  value: number;
  lower?: number;
  upper?: number;
}

export interface StepMarks {
  name: string; // of the step
  words: string; // everything, for the mouse
  next: Mark | null;
  other: Mark | null;
  limit: number | null; // above which a step is aborted
}

const height = 170;
const foot = 22; // for the names of the steps
const head = 8;
const sides = { next: { color: 'var(--chart-1)', shift: -5 }, other: { color: 'var(--chart-2)', shift: 5 } } as const;
const named = 8; // about as many steps have their name below them

// StepChart draws both sides of each step, with bounds and limit. Its numbers are in the table of the steps as well.
export function StepChart({
  label,
  unit,
  steps,
  names,
  limit,
  most = Infinity,
  format,
}: {
  label: string;
  unit: string;
  steps: StepMarks[];
  names: { next: string; other: string };
  limit: string; // what the limit is
  most?: number; // the greatest value that there can be
  format: (value: number) => string;
}) {
  const marks = steps.flatMap((s) => [s.next?.value, s.next?.upper, s.other?.value, s.other?.upper, s.limit]);
  const known = marks.filter((v) => typeof v === 'number');
  const top = Math.min(most, niceTop(1.1 * Math.max(0, ...known)));
  const y = (v: number) => head + (1 - v / top) * (height - head - foot);
  const x = (i: number) => `${(100 * (i + 0.5)) / steps.length}%`;
  const every = Math.ceil(steps.length / named);
  const drawn = Object.entries(sides) as [keyof typeof sides, (typeof sides)['next' | 'other']][];
  return (
    <figure aria-label={label} className="flex min-w-0 flex-col gap-2">
      <p className="text-sm text-muted">{unit}</p>
      {known.length === 0 ? (
        <p className="flex h-[170px] items-center justify-center rounded-md border border-dashed border-line text-muted">No requests yet</p>
      ) : (
        <div aria-hidden="true" className="flex">
          <svg width="52" height={height} className="shrink-0">
            {[0, top / 2, top].map((v) => (
              <text key={v} x="46" y={y(v) + 4} textAnchor="end" fontSize="11" fill="var(--muted)">
                {format(v)}
              </text>
            ))}
          </svg>
          <svg width="100%" height={height} className="min-w-0 flex-1">
            {[0, top / 2, top].map((v) => (
              <line key={v} x1="0" x2="100%" y1={y(v)} y2={y(v)} stroke="var(--line)" />
            ))}
            {steps.map((s, i) => (
              <svg key={s.name} x={x(i)} overflow="visible">
                {(i % every === 0 || i === steps.length - 1) && (
                  <text y={height - 6} textAnchor="middle" fontSize="11" fill="var(--muted)">
                    {s.name}
                  </text>
                )}
                {s.limit !== null && (
                  <line x1="-14" x2="14" y1={y(s.limit)} y2={y(s.limit)} stroke="var(--bad)" strokeWidth="1.5" strokeDasharray="4 2" />
                )}
              </svg>
            ))}
            {drawn.map(([side, { color, shift }]) => (
              <svg key={side} x={shift} overflow="visible" stroke={color} fill={color}>
                {steps.map((s, i) => {
                  const m = s[side];
                  if (!m) return null;
                  const before = steps[i - 1]?.[side];
                  return (
                    <g key={s.name}>
                      {before && <line x1={x(i - 1)} x2={x(i)} y1={y(before.value)} y2={y(m.value)} strokeOpacity="0.5" />}
                      {m.lower !== undefined && m.upper !== undefined && (
                        <line x1={x(i)} x2={x(i)} y1={y(m.lower)} y2={y(m.upper)} strokeWidth="2" strokeOpacity="0.5" />
                      )}
                      {side === 'next' ? (
                        <circle cx={x(i)} cy={y(m.value)} r="4" />
                      ) : (
                        <svg x={x(i)} y={y(m.value)} overflow="visible">
                          <rect x="-3.5" y="-3.5" width="7" height="7" />
                        </svg>
                      )}
                    </g>
                  );
                })}
              </svg>
            ))}
            {steps.map((s, i) => (
              <rect key={s.name} x={`${(100 * i) / steps.length}%`} width={`${100 / steps.length}%`} height={height} fill="transparent">
                <title>{s.words}</title>
              </rect>
            ))}
          </svg>
        </div>
      )}
      <figcaption className="flex flex-wrap items-center gap-x-4 gap-y-1 text-sm text-muted">
        {drawn.map(([side, { color }]) => (
          <span key={side} className="inline-flex min-w-0 items-center gap-1.5">
            <svg aria-hidden="true" width="10" height="10" className="shrink-0">
              {side === 'next' ? <circle cx="5" cy="5" r="4.5" fill={color} /> : <rect x="1" y="1" width="8" height="8" fill={color} />}
            </svg>
            <span className="truncate" title={names[side]}>
              {names[side]}
            </span>
          </span>
        ))}
        {steps.some((s) => s.limit !== null) && (
          <span className="inline-flex items-center gap-1.5">
            <svg aria-hidden="true" width="16" height="10" className="shrink-0">
              <line x1="0" x2="16" y1="5" y2="5" stroke="var(--bad)" strokeWidth="1.5" strokeDasharray="4 2" />
            </svg>
            {limit}
          </span>
        )}
      </figcaption>
    </figure>
  );
}
