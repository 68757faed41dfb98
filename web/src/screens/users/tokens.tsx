import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useList } from '../../api/hooks';
import { AsCode } from '../../ui/ascode';
import { Button, Empty, Moment, Panel, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import type { User } from './parts';

type Token = Schemas['UserToken'];

// Tokens lists the tokens of a user: those of its command lines.
export function Tokens({ record }: { record: User }) {
  const [open, setOpen] = useState<'all' | Token | null>(null);
  const path = { user_id: record.user_id };
  const query = useList('/v1/users/{user_id}/tokens', { path, query: { limit: 50 } }, { refetchInterval: 15_000 });
  const close = () => setOpen(null);
  return (
    <>
      <Panel
        title="Tokens"
        flush
        actions={
          (query.data?.data.data.length ?? 0) > 0 && (
            <Button size="sm" kind="danger" onClick={() => setOpen('all')}>
              Revoke all
            </Button>
          )
        }>
        <PagedTable
          label="Tokens"
          query={query}
          rowKey={(t) => t.token_id}
          empty={
            <Empty icon="key" title="No tokens">
              A token is what a command line gets by keygate login --sso or --device. It lasts 12 hours.
            </Empty>
          }
          columns={[
            {
              title: 'Machine',
              className: 'w-full max-w-0 min-w-28',
              cell: (t) => (
                <bdi className="block truncate" title={t.machine ?? t.token_prefix}>
                  {t.machine ?? t.token_prefix}
                </bdi>
              ),
            },
            { title: 'Address', className: 'hidden @3xl:table-cell', cell: (t) => <bdi>{t.address}</bdi> },
            { title: 'Prefix', className: 'hidden @2xl:table-cell', cell: (t) => <code>{t.token_prefix}</code> },
            { title: 'Expires', className: 'hidden @lg:table-cell', cell: (t) => <Moment at={t.expires_at} /> },
            {
              title: 'Last used',
              number: true,
              className: 'hidden @4xl:table-cell',
              cell: (t) => (t.last_used_at ? <Time at={t.last_used_at} /> : 'never'),
            },
            {
              title: <span className="sr-only">Action</span>,
              cell: (t) => (
                <Button size="sm" onClick={() => setOpen(t)}>
                  Revoke
                </Button>
              ),
            },
          ]}
        />
      </Panel>
      {open === 'all' && <RevokeAll record={record} onClose={close} />}
      {open !== null && open !== 'all' && <Revoke token={open} onClose={close} />}
    </>
  );
}

const listed = () => changed('/v1/users/{user_id}/tokens');

function Revoke({ token, onClose }: { token: Token; onClose: () => void }) {
  const { user_id, token_id } = token;
  const run = async () => {
    await api.delete('/v1/users/{user_id}/tokens/{token_id}', { path: { user_id, token_id } });
    toast('The token is revoked');
    await listed();
  };
  return (
    <ConfirmDialog title="Revoke the token" action="Revoke the token" onClose={onClose} run={run}>
      <p>
        The command line on{' '}
        <b>
          <bdi>{token.machine ?? token.address}</bdi>
        </b>{' '}
        is refused from now on, on every node.
      </p>
      <div>
        <AsCode
          command={{
            cli: `keygate users revoke ${user_id} --token-id ${token_id}`,
            method: 'DELETE',
            path: `/v1/users/${user_id}/tokens/${token_id}`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}

function RevokeAll({ record, onClose }: { record: User; onClose: () => void }) {
  const { user_id } = record;
  const run = async () => {
    await api.delete('/v1/users/{user_id}/tokens', { path: { user_id } });
    toast('The tokens are revoked');
    await listed();
  };
  return (
    <ConfirmDialog title="Revoke all tokens" action="Revoke all tokens" onClose={onClose} run={run}>
      <p>All command lines of the user are refused from now on, on every node. Its sessions in browsers go on.</p>
      <div>
        <AsCode command={{ cli: `keygate users revoke ${user_id}`, method: 'DELETE', path: `/v1/users/${user_id}/tokens` }} />
      </div>
    </ConfirmDialog>
  );
}
