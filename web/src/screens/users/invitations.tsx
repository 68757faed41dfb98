import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useList } from '../../api/hooks';
import { useProvider, useRefusal } from '../../api/session';
import { useUrl } from '../../lib/url';
import { AsCode } from '../../ui/ascode';
import { Button, Empty, Moment, Page, Panel, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { InviteUser } from './invite';
import { roles, UserNav } from './parts';

type Invitation = Schemas['Invitation'];

// Invitations lists the invitations that can still be used.
export default function Invitations() {
  const [{ cursor }] = useUrl<'cursor'>();
  const refused = useRefusal('admin', '');
  const { none } = useProvider();
  const [open, setOpen] = useState<'invite' | Invitation | null>(null);
  const query = useList('/v1/users/invitations', { query: { cursor, limit: 50 } }, { enabled: !refused, refetchInterval: 15_000 });
  const invite = (
    <Button kind="primary" icon="plus" why={refused ?? none} onClick={() => setOpen('invite')}>
      Invite a user
    </Button>
  );
  if (refused)
    return (
      <Page title="Invitations">
        <Panel>
          <Empty icon="stop" title="Not allowed">
            {refused}
          </Empty>
        </Panel>
      </Page>
    );
  return (
    <Page title="Invitations" actions={invite}>
      <UserNav />
      <Panel flush>
        <PagedTable
          label="Invitations"
          query={query}
          rowKey={(i) => i.invitation_id}
          empty={
            <Empty icon="user" title="No invitations">
              An invitation lets somebody with one email sign in for the first time. Those that were used, or have expired, are not shown.
            </Empty>
          }
          columns={[
            {
              title: 'Email',
              className: 'w-full max-w-0 min-w-28',
              cell: (i) => (
                <bdi className="block truncate" title={i.email}>
                  {i.email}
                </bdi>
              ),
            },
            { title: 'Role', cell: (i) => roles[i.role].label },
            { title: 'Expires', className: 'hidden @lg:table-cell', cell: (i) => <Moment at={i.expires_at} /> },
            { title: 'Created', number: true, className: 'hidden @3xl:table-cell', cell: (i) => <Time at={i.created_at} /> },
            {
              title: <span className="sr-only">Action</span>,
              cell: (i) => (
                <Button size="sm" onClick={() => setOpen(i)}>
                  Delete
                </Button>
              ),
            },
          ]}
        />
      </Panel>
      {open === 'invite' && <InviteUser onClose={() => setOpen(null)} />}
      {open !== null && open !== 'invite' && <DeleteInvitation record={open} onClose={() => setOpen(null)} />}
    </Page>
  );
}

function DeleteInvitation({ record, onClose }: { record: Invitation; onClose: () => void }) {
  const { invitation_id, email } = record;
  const run = async () => {
    await api.delete('/v1/users/invitations/{invitation_id}', { path: { invitation_id } });
    toast(`The invitation of ${email} is deleted`);
    await changed('/v1/users');
  };
  return (
    <ConfirmDialog title="Delete the invitation" action="Delete the invitation" onClose={onClose} run={run}>
      <p>
        The link that was sent to{' '}
        <b>
          <bdi>{email}</bdi>
        </b>{' '}
        no longer works.
      </p>
      <div>
        <AsCode
          command={{ cli: `keygate users uninvite ${invitation_id}`, method: 'DELETE', path: `/v1/users/invitations/${invitation_id}` }}
        />
      </div>
    </ConfirmDialog>
  );
}
