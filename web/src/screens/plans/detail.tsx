import { useNavigate, useParams } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { api } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { changed, useRecord, useWarnings } from '../../api/hooks';
import type { Plan } from '../../api/plans';
import { useRefusal } from '../../api/session';
import { calendarText, calendarWords } from '../../lib/calendar';
import { AsCode } from '../../ui/ascode';
import { Button, Details, Failure, Id, Page, Panel, Skeleton, Time, Warnings } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { toast } from '../../ui/toast';
import { FewKeys } from '../keys/few';
import { FewOwners, useFewOwners } from '../owners/few';
import { LimitList } from './limitlist';

export default function PlanPage() {
  const { planId } = useParams({ from: '/plans/$planId' });
  return <PlanDetail key={planId} planId={planId} />;
}

function PlanDetail({ planId }: { planId: string }) {
  const path = { plan_id: planId };
  const query = useRecord('/v1/plans/{plan_id}', { path }, { refetchInterval: 30_000 });
  const write = useRefusal('write', `plans/${planId}`);
  const admin = useRefusal('admin', `plans/${planId}`);
  const warnings = useWarnings(planId);
  const navigate = useNavigate();
  const owners = useFewOwners(planId);
  const { loading } = useGateways(); // the limits name them
  const [deleting, setDeleting] = useState(false);
  const p = query.data?.data;
  if (query.error && !p)
    return (
      <Page title="Plan">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!p || owners.isPending || loading)
    // all at once, so that nothing moves
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-48" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  return (
    <Page
      title={p.name}
      actions={
        <>
          <Button why={write} onClick={() => void navigate({ to: '/plans/$planId/edit', params: { planId } })}>
            Edit
          </Button>
          <Button why={admin} kind="danger" icon="stop" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      <Warnings texts={warnings} />
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(0,2fr)]">
        <Panel title="Plan">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={p.plan_id} />],
              ['Title', p.title ?? '–'],
              ...(p.limits.some((l) => l.quota) ? [['Calendar', calendarWords(calendarText(p))] as [ReactNode, ReactNode]] : []),
              ['Created', <Time key="created" at={p.created_at} />],
            ]}
          />
        </Panel>
        <Panel title="Limits">
          {p.limits.length === 0 ? (
            <p className="text-muted">It has no limits: keys and owners on it are limited by routes, gateways and their own limits only.</p>
          ) : (
            <LimitList label="Limits of the plan" lines={p.limits.map((limit) => ({ limit, gatewayId: limit.gateway_id }))} />
          )}
        </Panel>
      </div>
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-2">
        <FewOwners planId={planId} />
        <FewKeys of={{ plan_id: planId }} none="No key names this plan. Keys of owners with it have its limits all the same." />
      </div>
      {deleting && <DeletePlan record={p} onClose={() => setDeleting(false)} />}
    </Page>
  );
}

function DeletePlan({ record, onClose }: { record: Plan; onClose: () => void }) {
  const navigate = useNavigate();
  const run = async () => {
    await api.delete('/v1/plans/{plan_id}', { path: { plan_id: record.plan_id } });
    toast(`Plan “${record.name}” is deleted`);
    await navigate({ to: '/plans' });
    await changed('/v1/plans');
  };
  return (
    <ConfirmDialog title="Delete the plan" action="Delete the plan" onClose={onClose} run={run}>
      <p>
        The plan <b>{record.name}</b> is deleted. That is possible only while no key that is not revoked, no owner, no gateway and no
        default of the account names it.
      </p>
      <div>
        <AsCode command={{ cli: `keygate plans delete ${record.name}`, method: 'DELETE', path: `/v1/plans/${record.plan_id}` }} />
      </div>
    </ConfirmDialog>
  );
}
