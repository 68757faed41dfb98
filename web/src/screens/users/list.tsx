import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useProvider, useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { InviteUser } from './invite';
import { labelOf, type Role, roles, type User, UserNav, UserState } from './parts';

const filters: Filter[] = [
  { name: 'state', label: 'State', values: ['active', 'suspended'].map((v) => ({ value: v, label: v })) },
  { name: 'role', label: 'Role', values: Object.keys(roles).map((v) => ({ value: v, label: v })) },
  { name: 'email', label: 'Email' },
];

const columns: Column<User>[] = [
  {
    title: 'User',
    className: 'w-full max-w-0 min-w-28',
    cell: (u) => (
      <>
        <Link to="/users/$userId" params={{ userId: u.user_id }} className="row-link link block truncate font-medium" title={labelOf(u)}>
          <bdi>{labelOf(u)}</bdi>
        </Link>
        {u.email && u.name && (
          <bdi className="block truncate text-sm text-muted" title={u.email}>
            {u.email}
          </bdi>
        )}
      </>
    ),
  },
  { title: 'Role', cell: (u) => roles[u.role].label },
  { title: 'State', cell: (u) => <UserState record={u} /> },
  {
    title: 'Last seen',
    number: true,
    className: 'hidden @lg:table-cell',
    cell: (u) => (u.last_seen_at ? <Time at={u.last_seen_at} /> : <span className="text-muted">never</span>),
  },
  { title: 'Created', number: true, className: 'hidden @3xl:table-cell', cell: (u) => <Time at={u.created_at} /> },
];

export default function Users() {
  const [url, change] = useUrl<'q' | 'state' | 'role' | 'email' | 'cursor' | 'invite'>();
  const { q, state, role, email, cursor } = url;
  const refused = useRefusal('admin', '');
  const { provider, none } = useProvider();
  const query = useList(
    '/v1/users',
    { query: { q, state: state as User['state'], role: role as Role, email, cursor, limit: 50 } },
    { enabled: !refused, refetchInterval: cursor ? false : 15_000 },
  );
  const invite = (
    <Button kind="primary" icon="plus" why={refused ?? none} onClick={() => change({ invite: '1' })}>
      Invite a user
    </Button>
  );
  if (refused)
    return (
      <Page title="Users">
        <Panel>
          <Empty icon="stop" title="Not allowed">
            {refused}
          </Empty>
        </Panel>
      </Page>
    );
  return (
    <Page title="Users" actions={invite}>
      <UserNav />
      <Panel flush title={<FilterBar filters={filters} placeholder="Search users by name or email" />}>
        <PagedTable
          label="Users"
          query={query}
          ready={provider !== undefined}
          columns={columns}
          rowKey={(u) => u.user_id}
          empty={
            q || state || role || email ? (
              <Empty
                icon="search"
                title="No user matches"
                action={
                  <Button onClick={() => change({ q: undefined, state: undefined, role: undefined, email: undefined })}>
                    Clear the filters
                  </Button>
                }>
                Search finds a part of the name or email.
              </Empty>
            ) : (
              <Empty icon="user" title="No users yet" action={provider ? invite : undefined}>
                {provider ? (
                  <>People sign in through {provider}. Invite the first, or let the server map a claim to roles.</>
                ) : (
                  <>
                    People can sign in through an identity provider instead of with a key, once the server has{' '}
                    <code className="font-mono text-sm">--sso-issuer</code>.{' '}
                    <Link to="/help/$page" params={{ page: 'single-sign-on' }} className="link">
                      Set it up
                    </Link>
                  </>
                )}
              </Empty>
            )
          }
        />
      </Panel>
      {url.invite && !none && <InviteUser onClose={() => change({ invite: undefined }, true)} />}
    </Page>
  );
}
