import { Link, useParams } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { type Answer, ApiError, type Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useRecord } from '../../api/hooks';
import type { Plan } from '../../api/plans';
import { useRefusal } from '../../api/session';
import { milliseconds, plural } from '../../lib/format';
import { unknownWords, unitsWords } from '../../lib/cost';
import { capacity, spellLimit } from '../../lib/limit';
import { planAndLimit } from '../../lib/plan';
import { Button, buttonClass, CopyButton, Details, Empty, Failure, Id, Page, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { RecordLink } from '../audit/entry';
import { RequestStatus } from './columns';
import { clean, explain, isDaily, isInFlight, leftThen, limitName, type LoggedRequest, neverPasses } from './explain';
import { nowOf, type Raisable, RaiseLimit } from './raise';

export default function RequestDetail() {
  const { requestId } = useParams({ from: '/requests/$requestId' });
  const query = useRecord('/v1/requests/{request_id}', { path: { request_id: requestId } });
  const { nameOf, loading } = useGateways();
  const r = query.data?.data;
  const noGateways = useRefusal('read', 'gateways');
  const noKeys = useRefusal('read', 'keys');
  const routeRead = useRecord(
    '/v1/gateways/{gateway_id}/routes/{route_id}',
    { path: { gateway_id: r?.gateway_id ?? '', route_id: r?.route_id ?? '' } },
    { enabled: Boolean(r?.gateway_id && r.route_id) && !noGateways, retry: false },
  );
  const route = routeRead.data?.data;
  const keyRead = useRecord(
    '/v1/keys/{key_id}',
    { path: { key_id: r?.key_id ?? '' } },
    { enabled: Boolean(r?.key_id) && !noKeys, retry: false },
  );
  const key = keyRead.data?.data;
  const gateway = useRecord(
    '/v1/gateways/{gateway_id}',
    { path: { gateway_id: r?.gateway_id ?? '' } },
    {
      enabled: (r?.decision.limit_scope === 'global' || r?.decision.limit_scope === 'anonymous') && Boolean(r.gateway_id) && !noGateways,
      retry: false,
    },
  );
  const planRead = usePlanOf(r);
  const plan = planRead.data?.data.data[0];
  // The explanation has their names, so its length depends on them.
  const unnamed = loading || [routeRead, keyRead, gateway, planRead].some((read) => read.isLoading);
  const [raising, setRaising] = useState(false);
  const raisable = r && limitOf(r, { route: routeRead.data, key: keyRead.data, gateway: gateway.data });
  const noRaise = useRefusal('write', raisable?.kind === 'key' ? 'keys' : 'gateways');
  if (query.error && !r) {
    return (
      <Page title="Request">
        {query.error instanceof ApiError && query.error.status === 404 ? (
          <Panel>
            <Empty
              icon="request"
              title="This request cannot be explained"
              action={
                <Link to="/requests" className={buttonClass()}>
                  All refused and failed requests
                </Link>
              }>
              Only requests of the last 24 hours that were refused (401, 403, 429, or a 404 or 405 of the gateway), failed (5xx), have a
              cost or were sent to several targets are kept.
            </Empty>
          </Panel>
        ) : (
          <Failure error={query.error} retry={() => void query.refetch()} />
        )}
      </Page>
    );
  }
  if (!r || unnamed)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-64" />}>
        <Panel>
          <Skeleton className="h-24 w-full" />
        </Panel>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const d = r.decision;
  const names = {
    gateway: r.gateway_id ? nameOf(r.gateway_id) : undefined,
    route: route?.path,
    rate: raisable && rateThen(r, raisable),
    ...countedBy(r, plan),
  };
  const text = explain(r, names);
  const decision: [ReactNode, ReactNode][] = [
    ['Decided by', d.check],
    [
      'Code',
      <code key="code" className="font-mono text-sm">
        {d.code}
      </code>,
    ],
    ['What the server says', d.message],
    ...(d.limit_scope
      ? ([
          [
            'Limit',
            <LinkTo key="limit" plan={plan}>
              {limitName(r, names)
                .replace(/^the /, '')
                .replace(/^./, (c) => c.toUpperCase())}
            </LinkTo>,
          ],
          ['Left then', leftThen(r, names)],
          [
            'Would have passed',
            isInFlight(r) ? (
              'when one of those in flight had ended'
            ) : neverPasses(r) ? (
              'never: it does not reset'
            ) : (
              <Time key="passes" at={d.passes_at} />
            ),
          ],
        ] as [ReactNode, ReactNode][])
      : []),
    ...(d.upstream_status !== null ? [['Status of the upstream', d.upstream_status] as [ReactNode, ReactNode]] : []),
    ...(d.reason
      ? [
          [
            'Reason',
            <code key="reason" className="font-mono text-sm">
              {d.reason}
            </code>,
          ] as [ReactNode, ReactNode],
        ]
      : []),
    ...(r.host ? [['Host', clean(r.host)] as [ReactNode, ReactNode]] : []),
    ...d.nearest_routes.map((n): [ReactNode, ReactNode] => [
      'Near route',
      <span key={n.path}>
        <code className="font-mono text-sm break-all">
          {n.methods.join(', ')} {n.path}
        </code>{' '}
        does not match: {n.why}
      </span>,
    ]),
    ...(d.detail
      ? [
          [
            'Detail for the operator',
            <code key="detail" className="font-mono text-sm break-all">
              {d.detail}
            </code>,
          ] as [ReactNode, ReactNode],
        ]
      : []),
  ];
  return (
    <Page
      title={
        <span className="flex min-w-0 flex-wrap items-center gap-3">
          <span className="min-w-0 font-mono text-lg break-all">
            {r.method} {r.path}
          </span>
          <RequestStatus record={r} />
        </span>
      }>
      {query.error && <Failure error={query.error} />}
      <Panel
        title="Explanation"
        actions={
          <>
            {raisable && (
              <Button kind="primary" why={noRaise} onClick={() => setRaising(true)}>
                Raise this limit
              </Button>
            )}
            <CopyButton text={text} label="Copy the explanation">
              Copy
            </CopyButton>
          </>
        }>
        <p data-explanation className="max-w-[960px] text-lg break-words">
          {text}
        </p>
      </Panel>
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <Panel title="Decision">
          <Details rows={decision} />
        </Panel>
        <Panel title="Request">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={r.request_id} />],
              ['Time', <Time key="time" at={r.time} />],
              ['Client', <Id key="client" value={r.client_ip} />],
              ...((r.credential === 'token'
                ? [
                    ['Token of', r.issuer_id ? <RecordLink key="issuer" id={r.issuer_id} /> : 'an unknown issuer'],
                    ['Subject', <bdi key="subject">{r.subject ?? 'none'}</bdi>],
                  ]
                : [
                    [
                      'Key',
                      r.key_id ? (
                        <Link key="key" to="/keys/$keyId" params={{ keyId: r.key_id }} className="link">
                          <bdi>{key?.name ?? r.key_prefix ?? r.key_id}</bdi>
                        </Link>
                      ) : (
                        (r.key_prefix ?? 'none')
                      ),
                    ],
                  ]) as [string, React.ReactNode][]),
              [
                'Gateway',
                r.gateway_id ? (
                  <Link key="gateway" to="/gateways/$gatewayId" params={{ gatewayId: r.gateway_id }} className="link">
                    <bdi>{nameOf(r.gateway_id)}</bdi>
                  </Link>
                ) : (
                  'not known'
                ),
              ],
              [
                'Route',
                r.gateway_id && r.route_id ? (
                  <Link
                    key="route"
                    to="/gateways/$gatewayId/routes/$routeId"
                    params={{ gatewayId: r.gateway_id, routeId: r.route_id }}
                    className="link font-mono text-sm">
                    {route?.path ?? r.route_id}
                  </Link>
                ) : (
                  'not known: no route matched, or the request was refused before'
                ),
              ],
              ['Duration', milliseconds(Number(r.duration_ms))],
              ...(r.side !== null ? [['Side', `${r.side}: ${r.side_reason ?? ''}`] as [ReactNode, ReactNode]] : []),
              ...(Number(r.left_out) > 0
                ? [['Not in the list', `${plural(r.left_out, 'other request')} of the same second`] as [ReactNode, ReactNode]]
                : []),
            ]}
          />
        </Panel>
      </div>
      {r.attempts && <AttemptsPanel attempts={r.attempts} />}
      {(r.not_tried || r.all_unhealthy) && <UntriedPanel request={r} />}
      {r.cost && <CostPanel cost={r.cost} />}
      <p className="flex flex-wrap gap-2">
        {r.key_id && (
          <Link to="/requests" search={{ key_id: r.key_id }} className={buttonClass()}>
            More with this key
          </Link>
        )}
        {r.gateway_id && r.route_id && (
          <Link to="/requests" search={{ gateway_id: r.gateway_id, route_id: r.route_id }} className={buttonClass()}>
            More of this route
          </Link>
        )}
        <Link
          to="/audit"
          search={{ all: '1', ...(r.gateway_id && { gateway_id: r.gateway_id }), ...(r.key_id && { key_id: r.key_id }) }}
          className={buttonClass()}>
          Audit log
        </Link>
      </p>
      {raising && raisable && <RaiseLimit of={raisable} onClose={() => setRaising(false)} />}
    </Page>
  );
}

// AttemptsPanel shows each attempt of a request at a target, and how it ended.
function AttemptsPanel({ attempts }: { attempts: NonNullable<LoggedRequest['attempts']> }) {
  return (
    <Panel title="Attempts">
      <ol aria-label="Attempts" className="flex flex-col gap-2">
        {attempts.map((a, i) => (
          <li key={i} className="flex flex-wrap items-baseline gap-x-3">
            <Status tone={a.result === 'ok' ? 'ok' : 'bad'}>{a.result}</Status>
            <span className="min-w-0 break-words">{clean(a.explanation)}</span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

// UntriedPanel shows the targets that a request was not sent to because of their state, and why.
function UntriedPanel({ request: r }: { request: LoggedRequest }) {
  const listed = r.not_tried ?? [];
  const more = Number(r.not_tried_count) - listed.length;
  return (
    <Panel title="Targets that were not tried">
      {r.all_unhealthy && <p>Every target was unhealthy or ejected, so the request went to any that was not drained.</p>}
      {listed.length > 0 && (
        <ul aria-label="Targets that were not tried" className="flex flex-col gap-2">
          {listed.map((t, i) => (
            <li key={i} className="flex flex-wrap items-baseline gap-x-3">
              <Status tone={t.state === 'draining' || t.state === 'waiting' ? 'warn' : 'bad'}>{t.state.replaceAll('_', ' ')}</Status>
              <span className="min-w-0 break-words">{clean(t.explanation)}</span>
            </li>
          ))}
          {more > 0 && <li className="text-muted">and {more} more</li>}
        </ul>
      )}
    </Panel>
  );
}

// CostPanel shows what a request was charged, of each meter, and how that came about.
function CostPanel({ cost }: { cost: NonNullable<LoggedRequest['cost']> }) {
  return (
    <Panel title="Cost">
      <ul aria-label="Cost" className="flex flex-col divide-y divide-line">
        {Object.entries(cost).map(([meter, c]) => (
          <li key={meter} className="py-3 first:pt-0 last:pb-0">
            <Details
              rows={[
                ['Meter', <Mono key="meter" text={meter} />],
                ['Charged', <b key="charged">{unitsWords(meter, c.units)}</b>],
                ['Reserved', unitsWords(meter, c.reserved)],
                ['How it came about', clean(c.explanation)],
                ...(c.unknown
                  ? [
                      ['Unknown because', `${unknownWords(c.unknown)}. The route charges this for an unknown cost.`] as [
                        ReactNode,
                        ReactNode,
                      ],
                    ]
                  : []),
              ]}
            />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const Mono = ({ text }: { text: string }) => <code className="font-mono text-sm break-all">{text}</code>;

// usePlanOf reads the plan whose limit refused a request, if it still has that name.
function usePlanOf(r: LoggedRequest | undefined) {
  const d = r?.decision;
  const ofPlan = d?.limit_scope === 'plan' || (d?.limit_scope === 'concurrency' && d.limit_name?.includes('.'));
  const name = ofPlan && d?.limit_name ? planAndLimit(d.limit_name).plan : '';
  const refused = useRefusal('read', 'plans');
  return useRecord('/v1/plans', { query: { name, limit: 1 } }, { enabled: name !== '' && !refused });
}

// countedBy returns what the limit that refused a request counts, as the plan has it now.
function countedBy({ decision: { limit_name } }: LoggedRequest, plan: Plan | undefined): { meter?: string; quota?: string } {
  const limit = plan?.limits.find((l) => l.name === planAndLimit(limit_name ?? '').limit);
  return { meter: limit?.meter, quota: limit?.quota ?? undefined };
}

// LinkTo leads to a plan, if there is one.
function LinkTo({ plan, children }: { plan: Plan | undefined; children: ReactNode }) {
  if (!plan) return children;
  return (
    <Link to="/plans/$planId" params={{ planId: plan.plan_id }} className="link">
      {children}
    </Link>
  );
}

interface Read {
  route?: Answer<Schemas['Route']>;
  key?: Answer<Schemas['Key']>;
  gateway?: Answer<Schemas['Gateway']>;
}

// limitOf returns the limit that refused a request, if the record that has it was read and still has one.
function limitOf(r: LoggedRequest, { route, key, gateway }: Read): Raisable | undefined {
  const scope = r.decision.limit_scope;
  if (!scope || !r.gateway_id) return undefined;
  const base = { daily: isDaily(r), gatewayId: r.gateway_id };
  if (scope === 'plan' || scope === 'concurrency') return undefined; // the page of what has it has the editor
  if (scope === 'key') return key?.data.rate_limit ? { ...base, kind: 'key', first: key } : undefined;
  if (scope === 'global') return gateway?.data.global_rate_limit ? { ...base, kind: 'gateway', first: gateway } : undefined;
  if (scope === 'anonymous') return gateway?.data.anonymous_limit ? { ...base, kind: 'anonymous', first: gateway } : undefined;
  return route?.data.rate_limit ? { ...base, kind: 'route', first: route } : undefined;
}

// rateThen is the rate of the limit that refused a request, in words, unless the limit was changed afterwards.
function rateThen(r: LoggedRequest, of: Raisable): string | undefined {
  const { sustained, burst, daily } = nowOf(of);
  const now = of.daily ? { sustained: '', burst: '', daily } : { sustained, burst, daily: '' };
  const most = of.daily ? Number.parseInt(daily, 10) : capacity(now);
  return most === Number(r.decision.limit) ? spellLimit(now) : undefined;
}
