import { Link, useParams } from '@tanstack/react-router';
import { useCanary } from '../../api/canaries';
import { useWarnings } from '../../api/hooks';
import { useNames } from '../../api/names';
import { abortAbove, abortWords, badWords, type Canary, hasEnded, type Share, shareOf } from '../../lib/canary';
import { count, milliseconds, plural } from '../../lib/format';
import { Code, Details, Failure, Id, Panel, Skeleton, Time, Warnings } from '../../ui/basic';
import { Icon } from '../../ui/icon';
import { CanaryActions } from './actions';
import { StepChart, type StepMarks } from './chart';
import { explained, Explanation, StateIcon, StateOf } from './state';

// CanaryPage shows a canary: how both sides do in each step, and what was decided.
export default function CanaryPage() {
  const { gatewayId, canaryId } = useParams({ from: '/gateways/$gatewayId/canaries/$canaryId' });
  const query = useCanary(gatewayId, canaryId);
  if (!query.data)
    return query.error ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Skeleton className="h-96 w-full" />;
  return (
    <>
      {query.error && <Failure error={query.error} />}
      <CanaryDetail canary={query.data.data} />
    </>
  );
}

function CanaryDetail({ canary: c }: { canary: Canary }) {
  const warnings = useWarnings(c.canary_id);
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 text-lg font-semibold break-words">
          Canary of <span className="font-mono break-all">{c.upstream}</span>
        </h2>
        <StateOf canary={c} />
        <CanaryActions canary={c} />
      </div>
      {!hasEnded(c) && <Warnings texts={warnings} />}
      <Explanation canary={c} />
      {c.lines.length > 0 && (
        <Panel title="Lines to commit">
          <p className="mb-3 text-muted">
            The routes come from a file, a document or a repository. Give them this upstream there, and push it: that ends the canary.
          </p>
          <Code label="Lines to commit" text={c.lines.map((l) => (l.startsWith('{') ? `- ${l}` : l)).join('\n')} />
        </Panel>
      )}
      <Track canary={c} />
      <Panel title="Both sides">
        <Charts canary={c} />
      </Panel>
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
        <Panel flush title="Steps">
          <StepTable canary={c} />
        </Panel>
        <Panel title="About">
          <About canary={c} />
        </Panel>
      </div>
    </>
  );
}

// Track shows the steps that are over, the present one, and those to come.
function Track({ canary: c }: { canary: Canary }) {
  const stops = [...c.steps.map((w) => `${w} %`), c.when_done === 'promote' ? 'Promoted' : 'Held'];
  const at = c.state === 'promoted' || c.state === 'held' ? c.steps.length : c.step - 1;
  return (
    <ol aria-label="Course" className="flex flex-wrap items-center gap-2">
      {stops.map((stop, i) => {
        const passed = i === c.steps.length || c.progress.some((p) => p.step === i + 1); // a promotion by hand passes over steps
        const over = passed && (i < at || (i === at && c.state === 'promoted'));
        const present = i === at && !over;
        return (
          <li key={stop} className="flex items-center gap-2">
            {i > 0 && <Icon name="right" className="text-muted" />}
            <span
              aria-current={present ? 'step' : undefined}
              className={`inline-flex h-6 items-center gap-1 rounded-md border px-2 text-sm ${
                present ? `font-medium ${explained[c.state]}` : over ? 'border-line bg-surface' : 'border-dashed border-line text-muted'
              }`}>
              {over && <Icon name="check" className="size-3 text-ok" />}
              {present && <StateIcon state={c.state} className="size-3" />}
              {i === c.steps.length && c.state === 'promoted' ? 'Promoted' : i === c.steps.length && c.state === 'held' ? 'Held' : stop}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

const digits = (percent: number): string => percent.toFixed(percent < 1 ? 2 : 1);
const boundsWords = (s: Share | null): string => (s ? `${digits(s.lower)} to ${digits(s.upper)} %` : '–');
const p95Words = (ms: number | null): string => (ms === null ? '–' : milliseconds(ms));
const ticks = (v: number): string => `${Number(v.toPrecision(3))} %`;

function Charts({ canary: c }: { canary: Canary }) {
  const names = { next: c.upstream, other: c.other };
  const ratio = c.abort.latency?.p95_ratio;
  const bad = c.progress.map((p): StepMarks => {
    const [next, other] = [shareOf('next', p.next), shareOf('other', p.other)];
    const mark = (s: Share | null) => s && { value: s.of, lower: s.lower, upper: s.upper };
    const limit = abortAbove(c, other);
    const words = [
      `${p.weight} % of the callers`,
      `${c.upstream}: ${badWords(p.next)} bad, ${boundsWords(next)}`,
      `${c.other}: ${badWords(p.other)} bad, ${boundsWords(other)}`,
      ...(limit === null ? [] : [`Aborted above ${digits(limit)} %`]),
    ];
    return { name: `${p.weight} %`, words: words.join('\n'), next: mark(next), other: mark(other), limit };
  });
  const slow = c.progress.map((p): StepMarks => {
    const mark = (ms: number | null) => (ms === null ? null : { value: ms });
    const limit = ratio && p.other.p95_ms !== null ? ratio * p.other.p95_ms : null;
    const words = [
      `${p.weight} % of the callers`,
      `${c.upstream}: ${p95Words(p.next.p95_ms)}`,
      `${c.other}: ${p95Words(p.other.p95_ms)}`,
      ...(limit === null ? [] : [`Allowed about ${milliseconds(limit)}`]),
    ];
    return { name: `${p.weight} %`, words: words.join('\n'), next: mark(p.next.p95_ms), other: mark(p.other.p95_ms), limit };
  });
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-6 lg:grid-cols-2">
      <StepChart
        label="Bad requests of both sides"
        unit="Bad requests, with the bounds of the true share, by step"
        steps={bad}
        names={names}
        limit="Aborted if the bounds lie above"
        most={100}
        format={ticks}
      />
      <StepChart
        label="Latency of both sides"
        unit="95th percentile of the latency, by step"
        steps={slow}
        names={names}
        limit={`Limit: ${ratio} times ${c.other}`}
        format={(ms) => milliseconds(ms).replace('.0', '')}
      />
    </div>
  );
}

const cells = 'align-top px-1 @sm:px-3 py-1.5 text-right whitespace-nowrap last:pr-2 @sm:last:pr-4';
const heads = 'px-1 @sm:px-3 text-right font-medium whitespace-nowrap last:pr-2 @sm:last:pr-4';

function StepTable({ canary: c }: { canary: Canary }) {
  return (
    <div className="@container overflow-x-auto" tabIndex={0} role="region" aria-label="Figures of the steps">
      <table className="w-full border-collapse">
        <caption className="sr-only">Figures of the steps, the newest first</caption>
        <thead>
          <tr className="h-8 border-b border-line text-sm text-muted">
            <th scope="col" className="px-1.5 pl-4 text-left font-medium @sm:px-3 @sm:pl-4">
              Step
            </th>
            <th scope="col" className="px-1.5 text-left font-medium @sm:px-3">
              Side<span className="@sm:hidden">, p95</span>
            </th>
            <th scope="col" className={heads}>
              Requests
            </th>
            <th scope="col" className={heads}>
              Bad<span className="@2xl:hidden">, bounds</span>
            </th>
            <th scope="col" className={`hidden @2xl:table-cell ${heads}`}>
              Bounds
            </th>
            <th scope="col" className={`hidden @sm:table-cell ${heads}`}>
              p95
            </th>
          </tr>
        </thead>
        {c.progress.toReversed().map((p) => (
          <tbody key={p.step} className="border-b border-line last:border-0">
            {(['next', 'other'] as const).map((side) => (
              <tr key={side}>
                {side === 'next' && (
                  <th scope="rowgroup" rowSpan={2} className="px-1.5 py-1.5 pl-4 text-left align-top font-normal @sm:px-3 @sm:pl-4">
                    <b className="block font-semibold">{String(p.weight)} %</b>
                    <span className="text-sm text-muted">
                      <Time at={p.since} />
                    </span>
                  </th>
                )}
                <th scope="row" className="max-w-16 px-1 py-1.5 @sm:max-w-24 @sm:px-3 text-left align-top font-normal @2xl:max-w-40">
                  <span className="block truncate font-mono text-sm" title={side === 'next' ? c.upstream : c.other}>
                    {side === 'next' ? c.upstream : c.other}
                  </span>
                  <span className="block text-sm whitespace-nowrap text-muted @sm:hidden">{p95Words(p[side].p95_ms)}</span>
                </th>
                <td className={cells}>{count(p[side].requests)}</td>
                <td className={cells}>
                  {badWords(p[side])}
                  <span className="block text-sm text-muted @2xl:hidden">{boundsWords(shareOf(side, p[side]))}</span>
                </td>
                <td className={`hidden text-muted @2xl:table-cell ${cells}`}>{boundsWords(shareOf(side, p[side]))}</td>
                <td className={`hidden @sm:table-cell ${cells}`}>{p95Words(p[side].p95_ms)}</td>
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

const shown = 10; // routes by name

function About({ canary: c }: { canary: Canary }) {
  const routes = c.routes.slice(0, shown);
  const { nameOf } = useNames(routes.map((id) => ({ id, gateway_id: c.gateway_id })));
  const upstream = (name: string) => (
    <Link
      to="/gateways/$gatewayId/upstreams/$upstream"
      params={{ gatewayId: c.gateway_id, upstream: name }}
      className="link font-mono text-sm break-all">
      {name}
    </Link>
  );
  return (
    <Details
      rows={[
        ['Upstream', upstream(c.upstream)],
        ['Instead of', upstream(c.other)],
        [
          plural(c.routes.length, 'route'),
          <ul key="r" className="flex flex-col gap-1">
            {routes.map((id) => (
              <li key={id}>
                <Link
                  to="/gateways/$gatewayId/routes/$routeId"
                  params={{ gatewayId: c.gateway_id, routeId: id }}
                  className="link line-clamp-2 font-mono text-sm break-all"
                  title={nameOf(id)}>
                  {nameOf(id)}
                </Link>
              </li>
            ))}
            {c.routes.length > shown && <li className="text-muted">and {count(c.routes.length - shown)} more</li>}
          </ul>,
        ],
        ['Each step', `At least ${c.hold}, and ${plural(c.min_requests, 'request')} of each side`],
        [
          'Aborted for',
          <ul key="a" className="flex flex-col gap-1">
            {abortWords(c).map((w) => (
              <li key={w}>{w}</li>
            ))}
          </ul>,
        ],
        ['After the last step', c.when_done === 'promote' ? 'It is promoted' : 'It is held'],
        ['Started', <Time key="s" at={c.created_at} />],
        ...(c.ended_at ? [['Ended', <Time key="e" at={c.ended_at} />] as [string, React.ReactNode]] : []),
        ['Identifier', <Id key="i" value={c.canary_id} />],
      ]}
    />
  );
}
