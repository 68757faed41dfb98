import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { useList } from '../../api/hooks';
import type { Issuer } from '../../api/issuers';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { VerifyToken } from '../keys/verify';
import { IssuerState, usable } from './state';

const filters: Filter[] = [{ name: 'name', label: 'Name' }];

export default function Issuers() {
  const [{ q, name, cursor }, change] = useUrl<'q' | 'name' | 'cursor'>();
  const refused = useRefusal('admin', 'issuers');
  const navigate = useNavigate();
  const [verifying, setVerifying] = useState(false);
  const query = useList('/v1/issuers', { query: { q, name, cursor, limit: 50 } }, { refetchInterval: 15_000 });
  const columns: Column<Issuer>[] = [
    {
      title: 'Name',
      className: 'w-1/4 max-w-0 min-w-28',
      cell: (i) => (
        <Link
          to="/issuers/$issuerId"
          params={{ issuerId: i.issuer_id }}
          className="row-link link block truncate font-medium"
          title={i.name}>
          {i.name}
        </Link>
      ),
    },
    {
      title: 'Issuer',
      className: 'w-1/2 max-w-0 hidden @md:table-cell',
      cell: (i) => (
        <code className="block truncate font-mono text-sm" title={i.issuer}>
          {i.issuer}
        </code>
      ),
    },
    { title: 'State', cell: (i) => <IssuerState issuer={i} /> },
    {
      title: 'Last error',
      className: 'w-1/4 max-w-0 hidden @3xl:table-cell',
      cell: (i) => (
        <span className="block truncate text-muted" title={i.last_error ?? undefined}>
          {i.last_error ?? '–'}
        </span>
      ),
    },
    { title: 'Keys', number: true, className: 'hidden @sm:table-cell', cell: (i) => usable(i) },
    { title: 'Created', number: true, className: 'hidden @4xl:table-cell', cell: (i) => <Time at={i.created_at} /> },
  ];
  const create = (
    <Button kind="primary" icon="plus" why={refused} onClick={() => void navigate({ to: '/issuers/new' })}>
      Create an issuer
    </Button>
  );
  return (
    <Page
      title="Issuers"
      actions={
        <>
          <Button onClick={() => setVerifying(true)}>Check a token</Button>
          {create}
        </>
      }>
      <Panel flush title={<FilterBar filters={filters} placeholder="Search issuers by name" />}>
        <PagedTable
          label="Issuers"
          query={query}
          columns={columns}
          rowKey={(i) => i.issuer_id}
          empty={
            q || name ? (
              <Empty
                icon="search"
                title="No issuer matches"
                action={<Button onClick={() => change({ q: undefined, name: undefined })}>Clear the filters</Button>}>
                Search finds a part of the name.
              </Empty>
            ) : (
              <Empty icon="issuer" title="No issuers yet" action={create}>
                An issuer signs the tokens that callers have already, such as an identity provider. Gateways that name it take its tokens.
              </Empty>
            )
          }
        />
      </Panel>
      {verifying && <VerifyToken onClose={() => setVerifying(false)} />}
    </Page>
  );
}
