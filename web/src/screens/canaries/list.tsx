import { Link, useParams } from '@tanstack/react-router';
import { usePresentCanary } from '../../api/canaries';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useUpstreams } from '../../api/upstreams';
import { type Canary, explanationWords, stepWords, weightWords } from '../../lib/canary';
import { useUrl } from '../../lib/url';
import { Button, Empty, Panel, Time } from '../../ui/basic';
import { type Column, PagedTable } from '../../ui/table';
import { StartCanary } from './start';
import { StateOf } from './state';

// Canaries lists the canaries of a gateway. That one is being started is in the URL (start).
export default function Canaries() {
  const { gatewayId } = useParams({ from: '/gateways/$gatewayId/canaries' });
  const [{ cursor, start }, change] = useUrl<'cursor' | 'start'>();
  const refused = useRefusal('write', `gateways/${gatewayId}/canaries`);
  const upstreams = useUpstreams(gatewayId).data?.data.data;
  const present = usePresentCanary(gatewayId);
  const query = useList(
    '/v1/gateways/{gateway_id}/canaries',
    { path: { gateway_id: gatewayId }, query: { cursor, limit: 50 } },
    { refetchInterval: 5_000 },
  );
  const alone = upstreams?.length === 1;
  const why =
    refused ??
    (alone ? 'The gateway has one upstream. Add the one to which the canary sends requests.' : null) ??
    (present.canary ? 'The gateway has a canary that has not ended. Promote or abort it first.' : null);
  const columns: Column<Canary>[] = [
    {
      title: 'Upstream',
      className: 'max-w-32 @2xl:max-w-48',
      cell: (c) => (
        <Link
          to="/gateways/$gatewayId/canaries/$canaryId"
          params={{ gatewayId, canaryId: c.canary_id }}
          className="row-link link block truncate font-mono text-sm"
          title={c.upstream}>
          {c.upstream}
        </Link>
      ),
    },
    { title: 'State', cell: (c) => <StateOf canary={c} /> },
    { title: 'Step', className: 'hidden @md:table-cell whitespace-nowrap', cell: stepWords },
    { title: 'Callers', number: true, className: 'hidden @sm:table-cell', cell: weightWords },
    {
      title: 'Explanation',
      className: 'hidden @3xl:table-cell w-full max-w-0',
      cell: (c) => (
        <span className="block truncate text-muted" title={explanationWords(c)}>
          {explanationWords(c)}
        </span>
      ),
    },
    { title: 'Started', cell: (c) => <Time at={c.created_at} /> },
    { title: 'Ended', className: 'hidden @xl:table-cell', cell: (c) => <Time at={c.ended_at} /> },
  ];
  return (
    <Panel
      flush
      title="Canaries"
      actions={
        <Button icon="plus" why={why} onClick={() => change({ start: '1' })}>
          Start a canary
        </Button>
      }>
      <PagedTable
        label="Canaries"
        query={query}
        columns={columns}
        rowKey={(c) => c.canary_id}
        skeletons={3}
        empty={
          <Empty
            icon="branch"
            title="No canaries"
            action={
              <>
                {alone && (
                  <Link to="/gateways/$gatewayId/new-upstream" params={{ gatewayId }} className="link">
                    Add an upstream
                  </Link>
                )}
                <Link to="/help/$page" params={{ page: guide.page }} hash={guide.anchor} className="link">
                  How canaries work
                </Link>
              </>
            }>
            A canary sends a growing share of the callers to another upstream and compares both. If that one has more errors, or is slower,
            all callers go back by themselves.
          </Empty>
        }
      />
      {start !== undefined && (
        <StartCanary
          gatewayId={gatewayId}
          names={upstreams?.map((u) => u.name) ?? []}
          why={why}
          onClose={() => change({ start: undefined }, true)}
        />
      )}
    </Panel>
  );
}

// guide is the section of the documentation.
const guide = { page: 'upstreams', anchor: 'canary-a-version-that-must-prove-itself' };
