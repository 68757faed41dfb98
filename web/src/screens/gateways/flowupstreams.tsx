import { Link, useNavigate } from '@tanstack/react-router';
import { useRefusal } from '../../api/session';
import { shareMeaning, useShares } from '../../api/shares';
import { type Target, type Upstream, useUpstream } from '../../api/upstreams';
import { plural } from '../../lib/format';
import { statusOf } from '../../lib/targetstatus';
import { defaultUpstream } from '../../lib/upstream';
import { Button, Status } from '../../ui/basic';
import { Table } from '../../ui/table';
import { InFlight, TargetState, WorstState } from '../upstreams/state';

const most = 12; // targets that are shown

// UpstreamTable shows the end of the way of a request: the upstreams of a gateway with their targets.
export function UpstreamTable({ gatewayId, upstreams }: { gatewayId: string; upstreams: Upstream[] }) {
  const all = upstreams.flatMap(({ name, targets }) => targets.map((target, i): [string, Target, boolean] => [name, target, i === 0]));
  return (
    <div className="-mx-4 my-1 border-y border-line">
      <Table
        label="Targets"
        rows={all.slice(0, most)}
        rowKey={([name, target]) => `${name} ${target.url}`}
        empty={null}
        columns={[
          {
            title: 'Upstream',
            className: 'max-w-28 @2xl:max-w-48',
            cell: ([name, , isFirst]) => (
              <Link
                to="/gateways/$gatewayId/upstreams/$upstream"
                params={{ gatewayId, upstream: name }}
                className={`row-link block truncate font-mono text-sm ${isFirst ? 'link' : 'text-muted hover:text-text'}`}
                title={name}>
                {name}
              </Link>
            ),
          },
          {
            title: 'Target',
            className: 'w-full max-w-0',
            cell: ([name, target]) => (
              <Link
                to="/gateways/$gatewayId/upstreams/$upstream/target"
                params={{ gatewayId, upstream: name }}
                search={{ url: target.url }}
                className="line-clamp-2 font-mono text-sm break-all hover:underline @lg:line-clamp-1"
                title={target.url}>
                {target.url}
              </Link>
            ),
          },
          {
            title: <span title={shareMeaning}>Share, 1 h</span>,
            number: true,
            className: 'hidden @md:table-cell',
            cell: ([name, target]) => <Share gatewayId={gatewayId} upstream={name} target={target} />,
          },
          { title: 'Weight', number: true, className: 'hidden @lg:table-cell', cell: ([, target]) => String(target.weight) },
          {
            title: 'State',
            className: 'max-w-32 @lg:max-w-none',
            cell: ([name, target]) => (
              <span className="flex flex-wrap gap-1">
                <TargetState target={target} brief />
                <Live gatewayId={gatewayId} upstream={name} target={target} show="state" />
              </span>
            ),
          },
          {
            title: 'In flight',
            number: true,
            className: 'hidden @lg:table-cell',
            cell: ([name, target]) => <Live gatewayId={gatewayId} upstream={name} target={target} show="in flight" />,
          },
        ]}
      />
      {all.length > most && (
        <p className="border-t border-line px-4 py-2">
          <Link to="/gateways/$gatewayId/upstreams" params={{ gatewayId }} className="link">
            {plural(all.length - most, 'more target')}
          </Link>
        </p>
      )}
    </div>
  );
}

// Share shows the share of a target.
function Share({ gatewayId, upstream, target }: { gatewayId: string; upstream: string; target: Target }) {
  return useShares({ gateway_id: gatewayId, upstream })(target.url);
}

// Live shows what nodes report of a target at present, and keeps room for it until that is known.
function Live({ gatewayId, upstream, target, show }: { gatewayId: string; upstream: string; target: Target; show: 'state' | 'in flight' }) {
  const query = useUpstream(gatewayId, upstream, 5_000);
  const list = query.data ? statusOf(query.data.data, target.url) : [];
  if (show === 'in flight') return <InFlight list={list} />;
  if (query.data) return <WorstState list={list} />;
  return (
    <span className="invisible" aria-hidden>
      <Status tone="ok">Healthy</Status>
    </span>
  );
}

// AddLinks leads to another target of the gateway, and to another upstream.
export function AddLinks({ gatewayId }: { gatewayId: string }) {
  const navigate = useNavigate();
  const refused = useRefusal('write', `gateways/${gatewayId}/upstreams`);
  return (
    <div className="-ml-2 flex flex-wrap">
      <Button
        kind="quiet"
        size="sm"
        icon="plus"
        why={refused}
        onClick={() =>
          void navigate({
            to: '/gateways/$gatewayId/upstreams/$upstream',
            params: { gatewayId, upstream: defaultUpstream },
            search: { add: '1' },
          })
        }>
        Add a target
      </Button>
      <Button
        kind="quiet"
        size="sm"
        icon="plus"
        why={refused}
        onClick={() => void navigate({ to: '/gateways/$gatewayId/new-upstream', params: { gatewayId } })}>
        Add an upstream
      </Button>
    </div>
  );
}
