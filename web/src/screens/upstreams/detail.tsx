import { useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { type Answer, api } from '../../api/client';
import { changed, deleted } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { type Upstream, useUpstream } from '../../api/upstreams';
import { plural } from '../../lib/format';
import { defaultUpstream, settingRows } from '../../lib/upstream';
import { AsCode } from '../../ui/ascode';
import { Button, Details, Failure, Panel, Skeleton } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { toast } from '../../ui/toast';
import { Targets } from './targets';

export default function UpstreamPage() {
  const { gatewayId, upstream } = useParams({ from: '/gateways/$gatewayId/upstreams/$upstream' });
  const query = useUpstream(gatewayId, upstream);
  if (query.data)
    return (
      <>
        {query.error && <Failure error={query.error} />}
        <UpstreamDetail key={upstream} gatewayId={gatewayId} answer={query.data} />
      </>
    );
  return query.error ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Skeleton className="h-96 w-full" />;
}

function UpstreamDetail({ gatewayId, answer }: { gatewayId: string; answer: Answer<Upstream> }) {
  const u = answer.data;
  const navigate = useNavigate();
  const part = `gateways/${gatewayId}/upstreams/${u.name}`;
  const write = useRefusal('write', part);
  const admin = useRefusal('admin', part);
  const [deleting, setDeleting] = useState(false);
  const kept = u.name === defaultUpstream ? 'Routes that name no upstream use it.' : null;
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="min-w-0 font-mono text-lg font-semibold break-all">{u.name}</h2>
        <span className="ml-auto flex gap-2">
          <Button
            why={write}
            onClick={() => void navigate({ to: '/gateways/$gatewayId/upstreams/$upstream/edit', params: { gatewayId, upstream: u.name } })}>
            Edit
          </Button>
          <Button why={admin ?? kept} kind="danger" icon="stop" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        </span>
      </div>
      <Targets gatewayId={gatewayId} answer={answer} />
      <Panel title="Settings">
        <Details rows={settingRows(u)} />
      </Panel>
      {deleting && <DeleteUpstream gatewayId={gatewayId} record={u} onClose={() => setDeleting(false)} />}
    </>
  );
}

function DeleteUpstream({ gatewayId, record, onClose }: { gatewayId: string; record: Upstream; onClose: () => void }) {
  const { name, targets } = record;
  const navigate = useNavigate();
  const run = async () => {
    const path = { gateway_id: gatewayId, upstream: name };
    await api.delete('/v1/gateways/{gateway_id}/upstreams/{upstream}', { path });
    toast(`Upstream “${name}” is deleted`);
    deleted<Upstream>('/v1/gateways/{gateway_id}/upstreams', { gateway_id: gatewayId }, (u) => u.name === name);
    await navigate({ to: '/gateways/$gatewayId/upstreams', params: { gatewayId } });
    await changed('/v1/gateways');
  };
  return (
    <ConfirmDialog title="Delete the upstream" action="Delete the upstream" onClose={onClose} run={run}>
      <p>
        The upstream <b>{name}</b> is deleted with its {plural(targets.length, 'target')}. That is possible only while no route, split or
        canary names it.
      </p>
      <div>
        <AsCode
          command={{
            cli: `keygate upstreams delete --gateway ${gatewayId} ${name}`,
            method: 'DELETE',
            path: `/v1/gateways/${gatewayId}/upstreams/${name}`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}
