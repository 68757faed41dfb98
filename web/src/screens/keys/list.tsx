import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { useList } from '../../api/hooks';
import { planFilter, usePlans } from '../../api/plans';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { useUrl } from '../../lib/url';
import { Button, CopyButton, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { CreateKey } from './create';
import { ImportKeys } from './import';
import { Imported, KeyState } from './state';
import { VerifyKey } from './verify';

export default function Keys() {
  const [url, change] = useUrl<'q' | 'state' | 'owner' | 'plan_id' | 'gateway_id' | 'level' | 'name' | 'cursor' | 'create' | 'import'>();
  const { gateways, nameOf } = useGateways();
  const { plans, nameOf: planName } = usePlans();
  const [verifying, setVerifying] = useState(false);
  const refused = useRefusal('write', 'keys');
  const { q, state, owner, plan_id, gateway_id, level, name, cursor } = url;
  const filtered = Boolean(q || state || owner || plan_id || gateway_id || level || name);
  const query = useList(
    '/v1/keys',
    { query: { q, state, owner, plan_id, gateway_id, level, name, cursor, limit: 50 } },
    { refetchInterval: 15_000 },
  );

  const filters: Filter[] = [
    { name: 'state', label: 'State', values: ['active', 'expired', 'revoked'].map((v) => ({ value: v, label: v })) },
    { name: 'level', label: 'Level', values: ['gateway', 'account'].map((v) => ({ value: v, label: v })) },
    {
      name: 'gateway_id',
      label: 'Gateway',
      values: gateways.map((g) => ({ value: g.gateway_id, label: nameOf(g.gateway_id) })),
      shown: nameOf,
    },
    { name: 'owner', label: 'Owner' },
    planFilter(plans, planName),
  ];
  const columns: Column<Schemas['Key']>[] = [
    {
      title: 'Name',
      className: 'w-full max-w-0',
      cell: (k) => (
        <Link to="/keys/$keyId" params={{ keyId: k.key_id }} className="row-link link block truncate font-medium" title={k.name}>
          {k.name}
        </Link>
      ),
    },
    { title: 'State', cell: (k) => <KeyState record={k} /> },
    {
      title: 'Prefix',
      className: 'hidden @lg:table-cell',
      cell: (k) => (
        <span className="flex items-center gap-1">
          {k.key_prefix && (
            <>
              <code className="font-mono text-sm">{k.key_prefix}</code>
              <CopyButton text={k.key_prefix} label={`Copy ${k.key_prefix}`} />
            </>
          )}
          {k.imported && <Imported />}
        </span>
      ),
    },
    {
      title: 'Scope',
      className: 'max-w-40 2xl:max-w-72 hidden @3xl:table-cell',
      cell: (k) => (
        <code className="block truncate font-mono text-sm" title={k.scope}>
          {k.scope}
        </code>
      ),
    },
    {
      title: 'Owner',
      className: 'w-40 max-w-40 min-w-40 2xl:w-56 2xl:max-w-56 2xl:min-w-56 hidden @4xl:table-cell',
      cell: (k) =>
        k.owner && k.owner_id ? (
          <Link to="/owners/$ownerId" params={{ ownerId: k.owner_id }} className="link block wrap-anywhere">
            <bdi>{k.owner}</bdi>
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    {
      title: 'Plan',
      className: 'max-w-28 2xl:max-w-40 hidden @6xl:table-cell',
      cell: (k) => (
        <span className="block truncate" title={k.plan ?? undefined}>
          {k.plan ?? <span className="text-muted">–</span>}
        </span>
      ),
    },
    {
      title: 'Gateway',
      className: 'max-w-36 2xl:max-w-56 hidden @5xl:table-cell',
      cell: (k) => (
        <span className="block truncate text-muted" title={k.gateway_id ? nameOf(k.gateway_id) : undefined}>
          {k.level === 'account' ? 'management API' : k.gateway_id ? nameOf(k.gateway_id) : 'all'}
        </span>
      ),
    },
    { title: 'Last used', number: true, className: 'hidden @lg:table-cell', cell: (k) => <Time at={k.last_used_at} none="never" /> },
    { title: 'Created', number: true, className: 'hidden @2xl:table-cell', cell: (k) => <Time at={k.created_at} /> },
  ];
  return (
    <Page
      title="Keys"
      actions={
        <>
          <Button onClick={() => setVerifying(true)}>Check a key</Button>
          <Button why={refused} onClick={() => change({ import: '1' })}>
            Import keys
          </Button>
          <Button kind="primary" icon="plus" why={refused} onClick={() => change({ create: '1' })}>
            Create a key
          </Button>
        </>
      }>
      <Panel flush title={<FilterBar filters={filters} placeholder="Search keys by name or prefix" />}>
        <PagedTable
          label="Keys"
          query={query}
          columns={columns}
          rowKey={(k) => k.key_id}
          empty={
            filtered ? (
              <Empty
                icon="search"
                title="No key matches"
                action={
                  <Button
                    onClick={() =>
                      change({
                        q: undefined,
                        state: undefined,
                        owner: undefined,
                        plan_id: undefined,
                        gateway_id: undefined,
                        level: undefined,
                        name: undefined,
                      })
                    }>
                    Clear the filters
                  </Button>
                }>
                Search finds a part of the name, or the beginning of the prefix.
              </Empty>
            ) : (
              <Empty
                icon="key"
                title="No keys yet"
                action={
                  <Button kind="primary" icon="plus" why={refused} onClick={() => change({ create: '1' })}>
                    Create a key
                  </Button>
                }>
                A key lets a caller in. Its scope says which paths and methods it allows.
              </Empty>
            )
          }
        />
      </Panel>
      {url.create && !refused && <CreateKey onClose={() => change({ create: undefined }, true)} />}
      {url.import && !refused && <ImportKeys onClose={() => change({ import: undefined }, true)} />}
      {verifying && <VerifyKey onClose={() => setVerifying(false)} />}
    </Page>
  );
}
