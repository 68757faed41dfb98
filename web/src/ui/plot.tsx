import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import { minuteOf, tick, zone } from '../lib/time';

interface Series {
  label: string;
  color: string; // a custom property, such as "--chart-1"
  values: (number | null)[];
}

export interface PlotProps {
  times: number[]; // Unix times in seconds
  series: Series[];
  format: (value: number) => string;
  height: number; // in pixels
  whole?: boolean; // the values are whole numbers
  onZoom?: (since: number, until: number) => void; // an interval was brushed
}

// Plot draws a Chart with uPlot. It is a module of its own, which is loaded with the first chart.
export default function Plot({ times, series, format, height, onZoom, whole }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const zoom = useRef(onZoom);
  const data = useRef<uPlot.AlignedData>([[]]);
  useEffect(() => {
    zoom.current = onZoom;
    data.current = [times, ...series.map((s) => s.values)];
    plot.current?.setData(data.current);
  });
  const lines = useRef(series);
  const show = useRef(format);
  useEffect(() => {
    lines.current = series;
    show.current = format;
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const color = (name: string) => resolve(element, name);
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        {
          width: element.clientWidth,
          height,
          legend: { show: false },
          cursor: { y: false, drag: { x: Boolean(zoom.current), y: false, setScale: false }, points: { size: 6 } },
          scales: { y: { range: (_u, _min, max) => [0, whole ? Math.max(max * 1.1, 5) : max > 0 ? max * 1.1 : 1] } },
          axes: [
            {
              stroke: color('--muted'),
              grid: { show: false },
              ticks: { stroke: color('--line'), size: 4 },
              font: '11px system-ui',
              size: 28,
              space: 70,
              values: (_u, ticks, _axis, _space, step) => ticks.map((t) => tick(t, step)),
            },
            {
              stroke: color('--muted'),
              grid: { stroke: color('--line'), width: 1 },
              ticks: { show: false },
              font: '11px system-ui',
              size: 56,
              values: (_u, ticks) => ticks.map((t) => show.current(t).replace(/\.0+(?=\s|$)/, '')),
            },
          ],
          series: [
            {},
            ...lines.current.map((s) => ({
              label: s.label,
              stroke: color(s.color),
              width: 1.5,
              points: { show: true, size: 5, filter: isolated },
            })),
          ],
          hooks: {
            setSelect: [
              (u) => {
                if (u.select.width < 4) return;
                zoom.current?.(u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
                u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              },
            ],
          },
          plugins: [tooltip((v) => show.current(v))],
        },
        data.current,
        element,
      );
    };
    draw();
    const resized = new ResizeObserver(() => {
      if (element.clientWidth > 0) plot.current?.setSize({ width: element.clientWidth, height });
    });
    resized.observe(element);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    window.addEventListener('keygate-theme', draw);
    dark.addEventListener('change', draw);
    return () => {
      resized.disconnect();
      window.removeEventListener('keygate-theme', draw);
      dark.removeEventListener('change', draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [height, whole]);
  return <div ref={box} aria-hidden="true" className="h-full w-full overflow-hidden" />;
}

// isolated returns the points without a neighbour, which no line would show.
function isolated(u: uPlot, n: number): number[] {
  const values = u.data[n] ?? [];
  const alone: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] != null && values[i - 1] == null && values[i + 1] == null) alone.push(i);
  }
  return alone;
}

// resolve returns the colour of a custom property, in a form that a canvas takes.
function resolve(element: HTMLElement, name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  element.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

// tooltip shows the values under the cursor.
function tooltip(format: (v: number) => string): uPlot.Plugin {
  let box: HTMLDivElement;
  return {
    hooks: {
      init: (u) => {
        box = document.createElement('div');
        box.className =
          'pointer-events-none absolute top-1 z-10 hidden rounded-md border border-line bg-raised px-2 py-1 text-sm whitespace-pre shadow-md';
        u.over.append(box);
      },
      setCursor: (u) => {
        const { idx, left = 0 } = u.cursor;
        const at = idx == null ? undefined : u.data[0][idx];
        if (idx == null || at === undefined) {
          box.classList.add('hidden');
          return;
        }
        const lines = u.series.slice(1).map((s, i) => {
          const v = u.data[i + 1]?.[idx];
          return `${String(s.label)}: ${v == null ? '–' : format(v)}`;
        });
        box.textContent = [`${minuteOf(at)} ${zone(at)}`, ...lines].join('\n');
        box.classList.remove('hidden');
        box.style.left = `${left + (left > u.over.clientWidth / 2 ? -box.offsetWidth - 10 : 10)}px`;
      },
    },
  };
}
