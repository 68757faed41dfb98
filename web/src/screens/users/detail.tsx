import { Link, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { type Answer } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { Button, Details, Empty, Failure, Id, Notice, Page, Panel, Skeleton, Time } from '../../ui/basic';
import { ChangeRole, DeleteUser, ResumeUser, SuspendUser } from './actions';
import { labelOf, roles, type User, UserState } from './parts';
import { Tokens } from './tokens';

export default function UserPage() {
  const { userId } = useParams({ from: '/users/$userId' });
  return <UserDetail key={userId} userId={userId} />;
}

function UserDetail({ userId }: { userId: string }) {
  const refused = useRefusal('admin', '');
  const query = useRecord('/v1/users/{user_id}', { path: { user_id: userId } }, { enabled: !refused, refetchInterval: 15_000 });
  const [open, setOpen] = useState<'' | 'role' | 'suspend' | 'resume' | 'delete'>('');
  const close = () => setOpen('');
  const u = query.data?.data;
  if (refused || (query.error && !u))
    return (
      <Page title="User">
        {refused ? (
          <Panel>
            <Empty icon="stop" title="Not allowed">
              {refused}
            </Empty>
          </Panel>
        ) : (
          <Failure error={query.error} retry={() => void query.refetch()} />
        )}
      </Page>
    );
  if (!u)
    return (
      <Page key="loading" title={<Skeleton className="h-6 w-48" />}>
        <Panel>
          <Skeleton className="h-60 w-full" />
        </Panel>
      </Page>
    );
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-3">
          <bdi className="line-clamp-2 min-w-0 break-words" title={labelOf(u)}>
            {labelOf(u)}
          </bdi>
          <UserState record={u} />
        </span>
      }
      actions={
        <>
          <Button onClick={() => setOpen('role')}>Change the role</Button>
          {u.state === 'suspended' ? (
            <Button icon="play" onClick={() => setOpen('resume')}>
              Resume
            </Button>
          ) : (
            <Button kind="danger" icon="pause" onClick={() => setOpen('suspend')}>
              Suspend
            </Button>
          )}
          <Button kind="danger" icon="stop" onClick={() => setOpen('delete')}>
            Delete
          </Button>
        </>
      }>
      {query.error && <Failure error={query.error} />}
      {u.state === 'suspended' && <Notice>The user has no session and cannot sign in until it is resumed.</Notice>}
      <Panel title="User">
        <Details
          rows={[
            ['Role', `${roles[u.role].label}. ${roles[u.role].may}`],
            ['Email', u.email ? <Id key="email" value={u.email} /> : '–'],
            ['Name', u.name ? <bdi key="name">{u.name}</bdi> : '–'],
            ['Identity provider', <Id key="issuer" value={u.issuer} />],
            ['Subject', <Id key="subject" value={u.subject} />],
            ['In Keygate', <Id key="id" value={u.user_id} />],
            ['Came by', u.invited ? 'an invitation' : 'a role of the identity provider'],
            ['Last seen', u.last_seen_at ? <Time key="seen" at={u.last_seen_at} /> : 'never'],
            ['Created', <Time key="created" at={u.created_at} />],
          ]}
        />
        <p className="mt-4 text-sm text-muted">
          The issuer and the subject say who the user is; the email and the name are those of the last sign-in.{' '}
          <Link to="/audit" search={{ actor: u.user_id }} className="link">
            What the user has changed
          </Link>
        </p>
      </Panel>
      <Tokens record={u} />
      {open === 'role' && query.data && <ChangeRole first={query.data as Answer<User>} onClose={close} />}
      {open === 'suspend' && <SuspendUser record={u} onClose={close} />}
      {open === 'resume' && <ResumeUser record={u} onClose={close} />}
      {open === 'delete' && <DeleteUser record={u} onClose={close} />}
    </Page>
  );
}
