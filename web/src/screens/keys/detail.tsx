import { Link, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useRecord } from '../../api/hooks';
import { useAccount, useRefusal, wordOf } from '../../api/session';
import { count } from '../../lib/format';
import { showLimit } from '../../lib/limit';
import { buttonClass, Button, Details, Failure, Id, Notice, Page, Panel, Skeleton, Time, useNow } from '../../ui/basic';
import { PlanLink } from '../owners/parts';
import { Applying, useApplying } from '../plans/applying';
import { Quotas } from '../quotas/panel';
import { useQuotas } from '../quotas/subject';
import { EditKey } from './edit';
import { RevokeKey } from './revoke';
import { RotateKey, Rotation } from './rotate';
import { Imported, KeyState, week } from './state';
import { KeyUsage } from './usage';

export default function KeyPage() {
  const { keyId } = useParams({ from: '/keys/$keyId' });
  return <KeyDetail key={keyId} keyId={keyId} />;
}

// KeyDetail is made anew for each key: a dialog that was opened for one is never about another.
function KeyDetail({ keyId }: { keyId: string }) {
  const query = useRecord('/v1/keys/{key_id}', { path: { key_id: keyId } }, { refetchInterval: 15_000 });
  const { nameOf } = useGateways();
  const [open, setOpen] = useState<'' | 'edit' | 'rotate' | 'revoke'>('');
  const record = query.data?.data;
  const path = `keys/${keyId}`;
  const noOwners = useRefusal('read', 'owners');
  const owner = useRecord(
    '/v1/owners/{owner_id}',
    { path: { owner_id: record?.owner_id ?? '' } },
    { enabled: Boolean(record?.owner_id) && !noOwners, retry: false },
  );
  const limits = useApplying({
    keyPlan: record?.plan_id,
    ownerPlan: record?.owner_id && owner.isLoading ? undefined : (owner.data?.data.plan_id ?? null),
    gatewayId: record?.gateway_id,
  });
  const quotas = useQuotas({ kind: 'key', id: keyId }, record?.level === 'gateway');
  const whyNot = useRefusals(path, record);
  if (query.error && !record)
    return (
      <Page title="Key">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!record)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-48" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const gateway =
    record.level === 'account' ? (
      'none: it is for the management API'
    ) : record.gateway_id ? (
      <Link to="/gateways/$gatewayId" params={{ gatewayId: record.gateway_id }} className="link">
        {nameOf(record.gateway_id)}
      </Link>
    ) : (
      'all'
    );
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-3">
          <span className="line-clamp-2 min-w-0 break-words" title={record.name}>
            {record.name}
          </span>
          <KeyState record={record} />
          {record.imported && <Imported />}
        </span>
      }
      actions={
        <>
          <Button why={whyNot.write} onClick={() => setOpen('edit')}>
            Edit
          </Button>
          <Button why={whyNot.rotate} icon="refresh" onClick={() => setOpen('rotate')}>
            Rotate
          </Button>
          <Button why={whyNot.revoke} kind="danger" icon="stop" onClick={() => setOpen('revoke')}>
            Revoke
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      <Ending record={record} />
      {owner.data?.data.state === 'suspended' && record.state === 'active' && (
        <Notice>
          Its owner is suspended: requests with this key are refused with 403 until{' '}
          <Link to="/owners/$ownerId" params={{ ownerId: owner.data.data.owner_id }} className="link">
            the owner
          </Link>{' '}
          is resumed.
        </Notice>
      )}
      <Rotation record={record} />
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(0,2fr)]">
        <Panel title="Key">
          <Details
            rows={[
              ['Identifier', <Id key="id" value={record.key_id} />],
              ['Prefix', record.key_prefix ? <Id key="prefix" value={record.key_prefix} /> : '–'],
              [
                'Scope',
                <code key="scope" className="font-mono text-sm break-all">
                  {record.scope}
                </code>,
              ],
              ['Owner', <KeyOwner key="owner" record={record} />],
              ...(record.level === 'gateway'
                ? [['Plan', <PlanLink key="plan" record={record} none="none of its own" />] as [string, React.ReactNode]]
                : []),
              ['Gateway', gateway],
              ['Rate limit', showLimit(record.rate_limit)],
              ['Requests in flight', record.concurrency === null ? '–' : `at most ${count(record.concurrency)}`],
              ...(record.allow_ips ? [['Allowed addresses', record.allow_ips.join(', ')] as [string, React.ReactNode]] : []),
              ...(record.deny_ips ? [['Denied addresses', record.deny_ips.join(', ')] as [string, React.ReactNode]] : []),
              ['Expires', <Time key="expires" at={record.expires_at} none="never" />],
              ['Last used', <Time key="used" at={record.last_used_at} none="never" />],
              ['Created', <Time key="created" at={record.created_at} />],
              ...(record.revoked_at ? [['Revoked', <Time key="revoked" at={record.revoked_at} />] as [string, React.ReactNode]] : []),
              ...Object.entries(record.metadata).map(([k, v]): [React.ReactNode, React.ReactNode] => [
                <span key={k} className="break-words">
                  {k}
                </span>,
                v,
              ]),
            ]}
          />
        </Panel>
        {record.level === 'gateway' ? (
          <div className="flex min-w-0 flex-col gap-4">
            <KeyUsage keyId={keyId} />
            {quotas.ready && (limits.lines || limits.refused) ? (
              <>
                <Quotas quotas={quotas} more={record.owner_id && <OfOwner ownerId={record.owner_id} />} />
                <Applying of={limits} />
              </>
            ) : (
              <Panel>
                <Skeleton className="h-40 w-full" />
              </Panel>
            )}
          </div>
        ) : (
          <Panel title="Use">
            <p className="mb-3 text-muted">What this key has done is in the audit log.</p>
            <Link to="/audit" search={{ key_id: keyId, all: '1' }} className={buttonClass()}>
              Open the audit log
            </Link>
          </Panel>
        )}
      </div>
      {open === 'edit' && query.data && <EditKey first={query.data} onClose={() => setOpen('')} />}
      {open === 'rotate' && <RotateKey record={record} onClose={() => setOpen('')} />}
      {open === 'revoke' && <RevokeKey record={record} onClose={() => setOpen('')} />}
    </Page>
  );
}

// OfOwner leads to what all keys of the owner use together.
const OfOwner = ({ ownerId }: { ownerId: string }) => (
  <>
    What all keys of an owner use together is on the page of{' '}
    <Link to="/owners/$ownerId" params={{ ownerId }} className="link">
      its owner
    </Link>
    .
  </>
);

// KeyOwner leads to the owner of a key.
const KeyOwner = ({ record: { owner, owner_id } }: { record: Schemas['Key'] }) =>
  owner && owner_id ? (
    <Link to="/owners/$ownerId" params={{ ownerId: owner_id }} className="link">
      <bdi>{owner}</bdi>
    </Link>
  ) : (
    (owner ?? '–')
  );

// Ending warns of a key that expires within a week and has no successor.
function Ending({ record }: { record: Schemas['Key'] }) {
  const now = useNow();
  const ends = record.expires_at && record.state === 'active' && !record.rotated_to ? Date.parse(record.expires_at) : null;
  if (ends === null || ends <= now || ends - now > week) return null;
  return (
    <Notice>
      This key expires <Time at={record.expires_at} />, and is refused from then on. Give it a later expiry, or rotate it with one for the
      new key.
    </Notice>
  );
}

// useRefusals says why a key cannot be changed, rotated or revoked, if so. A key may always revoke itself.
function useRefusals(path: string, record: Schemas['Key'] | undefined): Record<'write' | 'rotate' | 'revoke', string | null> {
  const write = useRefusal('write', path);
  const revoke = useRefusal('admin', path);
  const admin = useRefusal('admin', '');
  const grant = useRefusal(wordOf(record?.scope ?? 'read'), path);
  const account = record?.level === 'account' ? admin : null;
  const ended = record && record.state !== 'active' ? `The key is ${record.state}, and can no longer be changed.` : null;
  const own = useAccount()?.key.key_id === record?.key_id;
  return {
    write: ended ?? write ?? account,
    rotate: ended ?? write ?? account ?? grant ?? (record?.rotated_to ? 'This key has been rotated already. Rotate the new one.' : null),
    revoke: record?.state === 'revoked' ? 'The key is revoked already.' : own ? null : (revoke ?? account),
  };
}
