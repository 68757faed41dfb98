import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Schemas } from '../../api/client';
import { useRecord } from '../../api/hooks';
import { signOut, useAccount, useRefusal } from '../../api/session';
import { setTheme, type Theme, useTheme } from '../../lib/theme';
import { useUrl } from '../../lib/url';
import { Button, buttonClass, Details, Empty, Failure, Id, Page, Panel, Status, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { Table } from '../../ui/table';
import { PlanLink } from '../owners/parts';
import { DefaultPlan } from './defaultplan';

const themes: { value: Theme; label: string }[] = [
  { value: 'system', label: 'As the system' },
  { value: 'light', label: 'Light' },
  { value: 'dark', label: 'Dark' },
];

// Settings shows the account, the session and every setting of the installation.
export default function SettingsPage() {
  const account = useAccount();
  const session = useRecord('/v1/session', {}, { retry: false });
  const [failed, setFailed] = useState<unknown>(null);
  const [choosing, setChoosing] = useState(false);
  const noAccount = useRefusal('write', 'account');
  const look = useTheme();
  const ends = account?.user ? 'or after 2 hours without a call' : 'or with the key';
  return (
    <Page title="Settings">
      {failed !== null && <Failure error={failed} />}
      <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-2">
        <Panel title="Account">
          {account && (
            <Details
              rows={[
                ['Name', account.name],
                ['Identifier', <Id key="id" value={account.account_id} />],
                ['Plan', account.plan],
                [
                  'Plan of new owners',
                  <span key="d" className="flex flex-wrap items-center gap-2">
                    <PlanLink record={{ plan_id: account.default_plan_id, plan: account.default_plan }} none="none" />
                    <Button size="sm" why={noAccount} onClick={() => setChoosing(true)}>
                      Change
                    </Button>
                  </span>,
                ],
                [
                  'State',
                  account.state === 'active' ? (
                    <Status key="s" tone="ok">
                      Active
                    </Status>
                  ) : (
                    <Status key="s" tone="bad" icon="stop">
                      Suspended
                    </Status>
                  ),
                ],
                ['Audit log kept for', `${account.audit_retention_days} days`],
                ['Hosts', account.hosts.length ? account.hosts.join(', ') : 'all'],
              ]}
            />
          )}
        </Panel>
        <Panel
          title="Session"
          actions={
            <Button size="sm" onClick={() => void signOut().catch(setFailed)}>
              Sign out
            </Button>
          }>
          {account && (
            <Details
              rows={[
                [
                  'Signed in with',
                  account.user ? (
                    <bdi key="u">{account.key.name}</bdi>
                  ) : (
                    <Link key="k" to="/keys/$keyId" params={{ keyId: account.key.key_id }} className="link">
                      {account.key.name}
                    </Link>
                  ),
                ],
                [
                  'Scope',
                  <code key="s" className="font-mono text-sm">
                    {account.key.scope}
                  </code>,
                ],
                [
                  'Ends',
                  session.data ? (
                    <span key="e">
                      <Time at={session.data.data.expires_at} />, {ends}
                    </span>
                  ) : (
                    `After 12 hours, ${ends}`
                  ),
                ],
                [
                  'Theme',
                  <select
                    key="t"
                    aria-label="Theme"
                    value={look}
                    className="h-7 rounded-md border border-line-strong bg-surface px-2"
                    onChange={(e) => setTheme(e.target.value as Theme)}>
                    {themes.map((t) => (
                      <option key={t.value} value={t.value}>
                        {t.label}
                      </option>
                    ))}
                  </select>,
                ],
              ]}
            />
          )}
          <p className="mt-4">
            <Link to="/keys" search={{ level: 'account' }} className={buttonClass()}>
              Account-level keys
            </Link>
          </p>
        </Panel>
      </div>
      <Installation />
      {choosing && account && <DefaultPlan now={account.default_plan} onClose={() => setChoosing(false)} />}
    </Page>
  );
}

// Installation lists every setting of the server, and where its value came from.
function Installation() {
  const [{ q }] = useUrl<'q'>();
  const query = useRecord('/v1/settings', {}, { retry: false });
  const word = (q ?? '').toLowerCase();
  const rows = query.data?.data.settings.filter((s) => s.name.includes(word) || s.value.toLowerCase().includes(word));
  return (
    <Panel
      flush
      title={<FilterBar placeholder="Search the settings of this server" />}
      actions={
        query.data && (
          <span className="text-muted">
            Keygate <code className="font-mono text-sm text-text">{query.data.data.version}</code>
          </span>
        )
      }>
      {query.error ? (
        <div className="p-4">
          {query.error.status === 403 ? (
            <p className="text-muted">The settings of this server are shown to the account default only, to keys that may read them.</p>
          ) : (
            <Failure error={query.error} retry={() => void query.refetch()} />
          )}
        </div>
      ) : (
        <Table<Schemas['Setting']>
          label="Settings of this server"
          rows={rows}
          rowKey={(s) => s.name}
          skeletons={12}
          empty={<Empty icon="settings" title="No setting matches" />}
          columns={[
            { title: 'Setting', cell: (s) => <code className="font-mono text-sm sm:whitespace-nowrap">{s.name}</code> },
            {
              title: 'Value',
              cell: (s) => (
                <>
                  {s.value === '' ? (
                    <span className="text-muted">not set</span>
                  ) : (
                    <code className="font-mono text-sm break-all">{s.value}</code>
                  )}
                  {s.source !== 'default' && <span className="block text-sm font-medium sm:hidden">from {s.source}</span>}
                </>
              ),
            },
            {
              title: 'From',
              className: 'hidden sm:table-cell',
              cell: (s) => <span className={s.source === 'default' ? 'text-muted' : 'font-medium'}>{s.source}</span>,
            },
          ]}
        />
      )}
    </Panel>
  );
}
