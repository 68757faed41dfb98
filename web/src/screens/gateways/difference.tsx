import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Schemas } from '../../api/client';
import { stringify } from '../../api/json';
import { count, plural } from '../../lib/format';
import { Empty, Status, Warnings } from '../../ui/basic';

type Push = Schemas['Push'];
type Change = Schemas['RouteChange'];

const show = (v: unknown): string => (v === null || v === undefined ? 'none' : typeof v === 'string' ? v : stringify(v));

// Difference shows what a push changes, and what it would have done to the traffic of the last 24 hours.
export function Difference({ push }: { push: Push }) {
  const nothing = push.added.length + push.removed.length + push.changed.length + (push.gateway?.length ?? 0) === 0;
  return (
    <div className="flex flex-col gap-4">
      <Warnings texts={push.warnings} />
      {nothing ? (
        <Empty icon="check" title="Nothing changes">
          Every route and limit is as it is now.
        </Empty>
      ) : (
        <>
          <p className="flex flex-wrap gap-2">
            <Status tone={push.added.length > 0 ? 'ok' : 'plain'} icon="plus">
              {count(push.added.length)} added
            </Status>
            <Status tone={push.removed.length > 0 ? 'bad' : 'plain'} icon="cross">
              {count(push.removed.length)} removed
            </Status>
            <Status tone={push.changed.length > 0 ? 'warn' : 'plain'} icon="refresh">
              {count(push.changed.length)} changed
            </Status>
            <span className="text-muted">{count(push.unchanged)} stay</span>
          </p>
          {push.effect && <EffectOf effect={push.effect} />}
          {push.gateway && push.gateway.length > 0 && (
            <Group title="Settings of the gateway">
              <ul className="flex flex-col gap-1">
                {push.gateway.map((c) => (
                  <Setting key={c.field} change={c} />
                ))}
              </ul>
            </Group>
          )}
          <Routes title="Removed" sign="−" tone="text-bad" list={push.removed} />
          <Routes title="Changed" sign="~" tone="text-warn" list={push.changed} />
          <Routes title="Added" sign="+" tone="text-ok" list={push.added} />
        </>
      )}
    </div>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="flex flex-col gap-1">
      <h3 className="font-semibold">{title}</h3>
      {children}
    </section>
  );
}

const shown = 200; // routes of a group that the page lists

function Routes({ title, sign, tone, list }: { title: string; sign: string; tone: string; list: Change[] }) {
  if (list.length === 0) return null;
  return (
    <Group title={`${title}: ${plural(list.length, 'route')}`}>
      <ul className="flex flex-col gap-1">
        {list.slice(0, shown).map((r) => (
          <li key={`${r.methods.join()} ${r.path}`} className="font-mono text-sm">
            <span className={`${tone} break-all`}>
              <span aria-hidden="true">{sign} </span>
              {r.methods.join(' ')} {r.path}
            </span>
            {r.changes && r.changes.length > 0 && (
              <ul className="pl-6">
                {r.changes.map((c) => (
                  <Setting key={c.field} change={c} />
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
      {list.length > shown && <p className="text-muted">and {count(list.length - shown)} more</p>}
    </Group>
  );
}

function Setting({ change }: { change: Schemas['SettingChange'] }) {
  return (
    <li className="font-mono text-sm break-all">
      <span className="text-muted">{change.field}:</span> <del className="text-bad">{show(change.before)}</del>{' '}
      <span aria-hidden="true">→</span> <ins className="text-ok no-underline">{show(change.after)}</ins>
    </li>
  );
}

// changeWords says what a push changes of a route.
const changeWords = (change: string): string => (change === 'concurrency' ? 'requests in flight' : change.replaceAll('_', ' '));

// EffectOf says what a push would have done in the last 24 hours.
function EffectOf({ effect }: { effect: Schemas['Effect'] }) {
  const more = Number(effect.refused) - Number(effect.refused_before);
  return (
    <div className={`rounded-md border px-3 py-2 ${more > 0 ? 'border-warn bg-warn-soft' : 'border-line bg-bg'}`}>
      <p className="font-medium">
        {Number(effect.requests) === 0 ? (
          'No request of the last 24 hours used these routes.'
        ) : (
          <>
            Last 24 h: {effect.at_most && 'at most '}
            <b>{count(effect.refused)}</b> of {plural(effect.requests, 'request')} on these routes would have been refused (
            {count(effect.refused_before)} were), from {plural(effect.keys, 'key')}.
          </>
        )}
      </p>
      {effect.routes
        .filter((r) => Number(r.requests) > 0)
        .slice(0, 20)
        .map((r) => (
          <p key={r.route_id + r.path} className="text-sm break-all">
            <code className="font-mono">
              {r.methods.join(' ')} {r.path}
            </code>
            : {r.at_most && 'at most '}
            {count(r.refused)} of {count(r.requests)} refused, {plural(r.keys, 'key')}{' '}
            <span className="text-muted">({r.changes.map(changeWords).join(', ')})</span>
          </p>
        ))}
      {effect.incomplete_reason && <p className="text-sm text-warn">Incomplete: {effect.incomplete_reason}.</p>}
      {Number(effect.routes_left_out) > 0 && <p className="text-sm text-muted">and {plural(effect.routes_left_out, 'more route')}</p>}
      {Number(effect.requests) > 0 && (
        <p className="mt-1 text-sm">
          <Link to="/requests" className="link">
            Refused requests
          </Link>
        </p>
      )}
    </div>
  );
}
