import { Link, useParams } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { calendarText, calendarWords } from '../../lib/calendar';
import { Button, Details, Failure, Id, Notice, Page, Panel, Skeleton, Time } from '../../ui/basic';
import { FewKeys } from '../keys/few';
import { Applying, useApplying } from '../plans/applying';
import { Quotas } from '../quotas/panel';
import { useQuotas } from '../quotas/subject';
import { DeleteOwner, ResumeOwner, SuspendOwner } from './actions';
import { EditOwner } from './edit';
import { OwnerCourse } from './course';
import { OwnerState, PlanLink } from './parts';

export default function OwnerPage() {
  const { ownerId } = useParams({ from: '/owners/$ownerId' });
  return <OwnerDetail key={ownerId} ownerId={ownerId} />;
}

function OwnerDetail({ ownerId }: { ownerId: string }) {
  const query = useRecord('/v1/owners/{owner_id}', { path: { owner_id: ownerId } }, { refetchInterval: 15_000 });
  const write = useRefusal('write', `owners/${ownerId}`);
  const admin = useRefusal('admin', `owners/${ownerId}`);
  const [open, setOpen] = useState<'' | 'edit' | 'suspend' | 'resume' | 'delete'>('');
  const close = () => setOpen('');
  const o = query.data?.data;
  const limits = useApplying({ ownerPlan: o?.plan_id });
  const quotas = useQuotas({ kind: 'owner', id: ownerId, external_id: o?.external_id }, o !== undefined);
  if (query.error && !o)
    return (
      <Page title="Owner">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!o || !(limits.lines || limits.refused) || !quotas.ready)
    // all, so that nothing moves
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-48" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const suspended = o.state === 'suspended';
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-3">
          <bdi className="line-clamp-2 min-w-0 break-words" title={o.external_id}>
            {o.name ?? o.external_id}
          </bdi>
          <OwnerState record={o} />
        </span>
      }
      actions={
        <>
          <Button why={write} onClick={() => setOpen('edit')}>
            Edit
          </Button>
          {suspended ? (
            <Button why={write} icon="play" onClick={() => setOpen('resume')}>
              Resume
            </Button>
          ) : (
            <Button why={write} kind="danger" icon="pause" onClick={() => setOpen('suspend')}>
              Suspend
            </Button>
          )}
          <Button why={admin} kind="danger" icon="stop" onClick={() => setOpen('delete')}>
            Delete
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      {suspended && <Notice>All requests with keys of this owner are refused with 403 until it is resumed.</Notice>}
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(0,2fr)]">
        <Panel title="Owner">
          <Details
            rows={[
              ['Identifier', <Id key="external" value={o.external_id} />],
              ['In Keygate', <Id key="id" value={o.owner_id} />],
              ['Name', o.name ?? '–'],
              ['Plan', <PlanLink key="plan" record={o} none="none: that of the gateway" />],
              ...(o.time_zone || o.anchor_day ? [['Calendar', calendarWords(calendarText(o))] as [ReactNode, ReactNode]] : []),
              ['Created', <Time key="created" at={o.created_at} />],
              ...Object.entries(o.metadata).map(([k, v]): [ReactNode, ReactNode] => [
                <span key={k} className="break-words">
                  {k}
                </span>,
                v,
              ]),
            ]}
          />
        </Panel>
        <div className="flex min-w-0 flex-col gap-4">
          <Quotas
            quotas={quotas}
            more={
              <Link to="/usage-records" search={{ owner_id: ownerId, since: '24h' }} className="link">
                Usage records of this owner
              </Link>
            }
          />
          <OwnerCourse ownerId={ownerId} quotas={quotas.usage.data?.data.data ?? []} />
          <Applying of={limits} />
        </div>
      </div>
      <FewKeys of={{ owner: o.external_id }} none="No key names this owner." />
      {open === 'edit' && query.data && <EditOwner first={query.data} onClose={close} />}
      {open === 'suspend' && <SuspendOwner record={o} onClose={close} />}
      {open === 'resume' && <ResumeOwner record={o} onClose={close} />}
      {open === 'delete' && <DeleteOwner record={o} onClose={close} />}
    </Page>
  );
}
