import { Link, useNavigate, useParams } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { api } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { changed, useRecord } from '../../api/hooks';
import type { Issuer } from '../../api/issuers';
import { useRefusal } from '../../api/session';
import { claimText, keysOf } from '../../lib/issuer';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Button, Details, Empty, Failure, Id, Notice, Page, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { Table } from '../../ui/table';
import { toast } from '../../ui/toast';
import { VerifyToken } from '../keys/verify';
import { Denials } from './denials';
import { IssuerState } from './state';

export default function IssuerPage() {
  const { issuerId } = useParams({ from: '/issuers/$issuerId' });
  return <IssuerDetail key={issuerId} issuerId={issuerId} />;
}

function IssuerDetail({ issuerId }: { issuerId: string }) {
  const path = { issuer_id: issuerId };
  const query = useRecord('/v1/issuers/{issuer_id}', { path }, { refetchInterval: 10_000 });
  const admin = useRefusal('admin', 'issuers');
  const navigate = useNavigate();
  const { gateways, loading, more } = useGateways();
  const [open, setOpen] = useState<'' | 'delete' | 'verify'>('');
  const i = query.data?.data;
  if (query.error && !i)
    return (
      <Page title="Issuer">
        <Failure error={query.error} retry={() => void query.refetch()} />
      </Page>
    );
  if (!i || loading)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-48" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  const naming = gateways.filter((g) => g.issuers?.includes(i.name));
  return (
    <Page
      title={i.name}
      actions={
        <>
          <Button onClick={() => setOpen('verify')}>Check a token</Button>
          <Refresh issuer={i} />
          <Button why={admin} onClick={() => void navigate({ to: '/issuers/$issuerId/edit', params: { issuerId } })}>
            Edit
          </Button>
          <Button why={admin} kind="danger" icon="stop" onClick={() => setOpen('delete')}>
            Delete
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      {i.last_error && (
        <Notice>
          Its keys could not be fetched the last time: <span className="break-words">{i.last_error}</span>.{' '}
          {i.keys.length > 0 ? 'Those that were fetched before stay in force.' : 'It has none yet, so its tokens are refused.'}{' '}
          <Link to="/help/$page" params={{ page: 'issuers' }} hash="if-keys-are-not-fetched" className="link">
            What to do
          </Link>
        </Notice>
      )}
      <div className="grid grid-cols-[minmax(0,1fr)] items-start gap-4 lg:grid-cols-2">
        <Panel title="Issuer">
          <Details rows={identity(i)} />
        </Panel>
        <Panel title="What a token gives">
          <Details rows={gives(i)} />
        </Panel>
      </div>
      <Keys issuer={i} />
      <Denials issuer={i} />
      <Panel title="Gateways">
        {naming.length === 0 ? (
          <p className="text-muted">
            {more ? 'None of the newest 100 gateways names it.' : 'No gateway names it, so none takes its tokens.'}
          </p>
        ) : (
          <ul aria-label="Gateways that name the issuer" className="flex flex-wrap gap-x-4 gap-y-1">
            {naming.map((g) => (
              <li key={g.gateway_id}>
                <Link to="/gateways/$gatewayId" params={{ gatewayId: g.gateway_id }} className="link break-all">
                  {g.name}
                </Link>
              </li>
            ))}
          </ul>
        )}
      </Panel>
      {open === 'verify' && <VerifyToken onClose={() => setOpen('')} />}
      {open === 'delete' && <DeleteIssuer record={i} gateways={naming.map((g) => g.name)} onClose={() => setOpen('')} />}
    </Page>
  );
}

const mono = (text: string) => <code className="font-mono text-sm break-all">{text}</code>;

const sources: Record<ReturnType<typeof keysOf>, string> = {
  discovery: 'fetched, where discovery says',
  url: 'fetched from',
  given: 'given by hand',
};

// identity is who an issuer is, and what its tokens must have.
function identity(i: Issuer): [ReactNode, ReactNode][] {
  return [
    ['Identifier', <Id key="id" value={i.issuer_id} />],
    ['Issuer (iss)', <Id key="iss" value={i.issuer} />],
    ['State', <IssuerState key="state" issuer={i} />],
    [
      'Keys',
      <span key="keys">
        {sources[keysOf(i)]} {i.jwks_url && mono(i.jwks_url)}
        {i.ca && ', with certificates of its own'}
      </span>,
    ],
    ['Audiences', <List key="aud" texts={i.audiences} />],
    ['Algorithms', i.algorithms.join(', ')],
    ['Leeway', i.leeway],
    ['Longest lifetime', i.max_lifetime],
    ...(i.typ ? [['Type', mono(i.typ)] as [ReactNode, ReactNode]] : []),
    ...Object.entries(i.required).map(([claim, value]): [ReactNode, ReactNode] => [
      <span key={claim}>Required: {mono(claim)}</span>,
      mono(claimText(value)),
    ]),
    ['Created', <Time key="created" at={i.created_at} />],
  ];
}

// gives is what a token gives its bearer, and the upstream.
function gives(i: Issuer): [ReactNode, ReactNode][] {
  return [
    [
      'Scopes',
      i.claims.scope ? (
        mono(i.claims.scope)
      ) : (
        <span key="s">
          {mono('scope')}, or else {mono('scp')}
        </span>
      ),
    ],
    ...Object.entries(i.scope_map).map(([word, scope]): [ReactNode, ReactNode] => [
      <span key={word}>Scope of {mono(word)}</span>,
      mono(scope),
    ]),
    ['Default scopes', i.default_scopes?.length ? mono(i.default_scopes.join(' ')) : 'none'],
    [
      'Owner',
      i.claims.owner ? (
        <span key="o">
          {mono(i.claims.owner)} {i.owner_prefix && <>after {mono(i.owner_prefix)}</>}
        </span>
      ) : (
        'none'
      ),
    ],
    ['Plan', i.claims.plan ? mono(i.claims.plan) : 'that of the owner or of the gateway'],
    ...Object.entries(i.claim_headers).map(([header, claim]): [ReactNode, ReactNode] => [
      mono(header),
      <span key={header}>the claim {mono(claim)}</span>,
    ]),
    ['Token', i.forward_token ? 'stays in requests for the upstream' : 'is removed from requests for the upstream'],
  ];
}

const List = ({ texts }: { texts: string[] }) => (
  <ul>
    {texts.map((t) => (
      <li key={t}>{mono(t)}</li>
    ))}
  </ul>
);

// Keys lists the present keys of an issuer, when each was seen first, and why one verifies no token.
function Keys({ issuer }: { issuer: Issuer }) {
  return (
    <Panel flush title="Keys">
      <Table
        plain
        label="Keys"
        rows={issuer.keys.map((key, n) => ({ ...key, n }))}
        rowKey={(k) => String(k.n)}
        empty={
          <Empty icon="key" title="No keys">
            Tokens are refused until its keys are known.
          </Empty>
        }
        columns={[
          {
            title: 'Key (kid)',
            className: 'w-1/2 max-w-0 min-w-24',
            cell: (k) =>
              k.kid === null ? (
                <span className="text-muted">without one</span>
              ) : (
                <code className="block truncate font-mono text-sm" title={k.kid}>
                  {k.kid}
                </code>
              ),
          },
          {
            title: 'Algorithm',
            className: 'hidden @sm:table-cell',
            cell: (k) => k.alg ?? <span className="text-muted whitespace-nowrap">any of its type</span>,
          },
          {
            title: 'Use',
            className: 'w-1/2 max-w-0 min-w-28',
            cell: (k) =>
              k.unusable ? (
                <span className="flex min-w-0 flex-wrap items-center gap-x-2">
                  <Status tone="warn">Not used</Status>
                  <span className="min-w-0 text-sm text-muted">It {k.unusable}.</span>
                </span>
              ) : (
                <Status tone="ok">In force</Status>
              ),
          },
          { title: 'First seen', number: true, className: 'hidden @sm:table-cell', cell: (k) => <Time at={k.first_seen} /> },
        ]}
      />
    </Panel>
  );
}

// Refresh fetches the keys now, and says what came of it.
function Refresh({ issuer: i }: { issuer: Issuer }) {
  const refused = useRefusal('write', `issuers/${i.issuer_id}`);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const refresh = async () => {
    setBusy(true);
    setError(null);
    try {
      const { data } = await api.post('/v1/issuers/{issuer_id}/refresh', { path: { issuer_id: i.issuer_id } });
      if (!data.last_error) toast(`The keys of “${data.name}” are fetched`);
      await changed('/v1/issuers');
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Button
        icon="refresh"
        busy={busy}
        why={refused ?? (i.jwks ? 'Its keys are given by hand, and not fetched.' : null)}
        onClick={() => void refresh()}>
        Fetch the keys
      </Button>
      {error !== null && (
        <div className="w-full">
          <Failure error={error} />
        </div>
      )}
    </>
  );
}

// DeleteIssuer says which gateways name the issuer, which must not any more.
function DeleteIssuer({ record, gateways, onClose }: { record: Issuer; gateways: string[]; onClose: () => void }) {
  const navigate = useNavigate();
  const run = async () => {
    await api.delete('/v1/issuers/{issuer_id}', { path: { issuer_id: record.issuer_id } });
    toast(`Issuer “${record.name}” is deleted`);
    await navigate({ to: '/issuers' });
    await changed('/v1/issuers');
  };
  return (
    <ConfirmDialog title="Delete the issuer" action="Delete the issuer" onClose={onClose} run={run}>
      <p>
        The issuer <b>{record.name}</b> is deleted, with its keys. That is possible only while no gateway names it.
      </p>
      {gateways.length > 0 && (
        <Notice>
          {gateways.length === 1 ? 'This gateway names it' : 'These gateways name it'}: <b className="break-words">{gateways.join(', ')}</b>
          . Take it out of their settings first.
        </Notice>
      )}
      <div>
        <AsCode
          command={{ cli: `keygate issuers delete ${quote(record.name)}`, method: 'DELETE', path: `/v1/issuers/${record.issuer_id}` }}
        />
      </div>
    </ConfirmDialog>
  );
}
