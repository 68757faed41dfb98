import { useState } from 'react';
import { api, type Answer, base, type Schemas } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { quote } from '../../lib/shell';
import { Button, CopyButton, Details, Empty, Failure, Id, Panel, Skeleton, Status, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { AreaField, CheckField, SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { Icon } from '../../ui/icon';
import { SecretDialog } from '../../ui/secret';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';

type Repository = Schemas['Repository'];

export function RepositoryState({ record }: { record: Repository }) {
  switch (record.state) {
    case 'ok':
      return <Status tone="ok">In sync</Status>;
    case 'syncing':
      return (
        <Status tone="info" icon="refresh">
          Syncing
        </Status>
      );
    case 'paused':
      return (
        <Status tone="warn" icon="pause">
          Paused
        </Status>
      );
    default:
      return <Status tone="bad">Failing</Status>;
  }
}

export default function RepositoryPage() {
  const { gatewayId } = useGateway();
  const path = { gateway_id: gatewayId };
  const query = useRecord(
    '/v1/gateways/{gateway_id}/repository',
    { path },
    { retry: false, refetchInterval: (q) => (q.state.data?.data.state === 'syncing' ? 1_000 : q.state.data ? 10_000 : false) },
  );
  const refused = useRefusal('write', `gateways/${gatewayId}`);
  const notAdmin = useRefusal('admin', `gateways/${gatewayId}`);
  const [open, setOpen] = useState<'' | 'connect' | 'edit' | 'disconnect'>('');
  const [secret, setSecret] = useState('');
  const [failed, setFailed] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const record = query.data?.data;
  const act = async (what: 'sync' | 'resume') => {
    setBusy(true);
    setFailed(null);
    try {
      await api.post(what === 'sync' ? '/v1/gateways/{gateway_id}/repository/sync' : '/v1/gateways/{gateway_id}/repository/resume', {
        path,
      });
    } catch (e) {
      setFailed(e);
    }
    setBusy(false);
    await changed('/v1/gateways');
  };
  // The dialogs stand beside the content, whatever the last read gave, so that a read that fails closes none.
  const around = (content: React.ReactNode) => (
    <>
      {content}
      {(open === 'connect' || open === 'edit') && (
        <Connect
          gatewayId={gatewayId}
          first={open === 'edit' ? (query.data ?? null) : null}
          onClose={() => setOpen('')}
          onSecret={setSecret}
        />
      )}
      {secret && (
        <SecretDialog title="Secret of the push hook" what="hook secret" secret={secret} onClose={() => setSecret('')}>
          <p>Enter it in your Git server beside the address of the hook, which this page shows.</p>
        </SecretDialog>
      )}
    </>
  );
  if (query.error && (query.error.status === 404 || !record)) {
    if (query.error.status !== 404) return around(<Failure error={query.error} retry={() => void query.refetch()} />);
    return around(
      <Panel>
        <Empty
          icon="branch"
          title="No repository is connected"
          action={
            <Button kind="primary" why={refused} onClick={() => setOpen('connect')}>
              Connect a repository
            </Button>
          }>
          Keygate then follows a file of a Git repository: when the commit changes, the file is pushed. A bad commit changes nothing.
        </Empty>
      </Panel>,
    );
  }
  if (!record) return around(<Skeleton className="h-80 w-full" />);
  const hook = `${location.origin}${base}v1/hooks/git/${gatewayId}`;
  return around(
    <div className="grid grid-cols-[minmax(0,1fr)] gap-4 lg:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
      <Panel
        title={
          <h2 className="flex items-center gap-2 font-semibold">
            Repository <RepositoryState record={record} />
          </h2>
        }
        actions={
          <>
            {record.state === 'paused' && (
              <Button size="sm" icon="play" why={refused} busy={busy} onClick={() => void act('resume')}>
                Resume
              </Button>
            )}
            <Button size="sm" icon="refresh" why={refused} busy={busy || record.state === 'syncing'} onClick={() => void act('sync')}>
              Sync now
            </Button>
            <Button size="sm" why={refused} onClick={() => setOpen('edit')}>
              Edit
            </Button>
          </>
        }>
        <div className="flex flex-col gap-4">
          {failed !== null && <Failure error={failed} />}
          {query.error && <Failure error={query.error} retry={() => void query.refetch()} />}
          {record.last_error && (
            <div role="alert" className="flex gap-2 rounded-md border border-bad bg-bad-soft px-3 py-2">
              <Icon name="warn" className="mt-0.5 text-bad" />
              <div className="min-w-0">
                <p className="font-medium">The last sync failed. What was in force before is still in force.</p>
                <p className="font-mono text-sm break-words whitespace-pre-wrap">{record.last_error}</p>
              </div>
            </div>
          )}
          {record.state === 'paused' && (
            <p className="rounded-md bg-warn-soft px-3 py-2">
              It is paused since a rollback: new commits are not applied until you resume it.
            </p>
          )}
          {record.warnings.map((w, i) => (
            <p key={i} className="rounded-md bg-warn-soft px-3 py-2 break-words">
              {w}
            </p>
          ))}
          <Details
            rows={[
              [
                'Address',
                <code key="u" className="font-mono text-sm break-all">
                  {record.url}
                </code>,
              ],
              ['Branch', record.branch],
              [
                'File',
                <code key="p" className="font-mono text-sm break-all">
                  {record.path}
                </code>,
              ],
              ['Kind', record.kind === 'spec' ? 'OpenAPI document' : 'Configuration file'],
              ['Looks every', record.interval],
              ['Credential', record.credential ?? 'none'],
              ...(record.host_key
                ? [
                    [
                      'Host key',
                      <code key="h" className="font-mono text-sm break-all">
                        {record.host_key}
                      </code>,
                    ] as [string, React.ReactNode],
                  ]
                : []),
              ['Last commit', record.last_commit ? <Id key="c" value={record.last_commit} /> : '–'],
              ['Last synced', <Time key="s" at={record.last_synced_at} none="never" />],
              ['Next look', <Time key="n" at={record.next_sync_at} />],
            ]}
          />
        </div>
      </Panel>
      <div className="flex flex-col gap-4">
        <Panel title="Push hook">
          <p className="mb-2 text-muted">With a hook of your Git server, a push is applied at once.</p>
          <div className="flex items-center gap-1 rounded-md border border-line bg-bg p-2">
            <code className="min-w-0 flex-1 font-mono text-sm break-all">{hook}</code>
            <CopyButton text={hook} label="Copy the address of the hook" />
          </div>
        </Panel>
        <Panel title="Disconnect">
          <p className="mb-3 text-muted">The gateway keeps what is in force.</p>
          <Button why={notAdmin} kind="danger" onClick={() => setOpen('disconnect')}>
            Disconnect the repository
          </Button>
        </Panel>
      </div>
      {open === 'disconnect' && (
        <ConfirmDialog
          title="Disconnect the repository"
          action="Disconnect"
          onClose={() => setOpen('')}
          run={async () => {
            await api.delete('/v1/gateways/{gateway_id}/repository', { path });
            toast('The repository is disconnected');
            await changed('/v1/gateways');
          }}>
          <p>
            Keygate no longer follows <b>{record.url}</b>. Its credential and the secret of its hook are forgotten. Routes and settings stay
            as they are.
          </p>
        </ConfirmDialog>
      )}
    </div>,
  );
}

const credentials = [
  { value: 'keep', label: 'Keep the stored one' },
  { value: 'none', label: 'None' },
  { value: 'token', label: 'Access token' },
  { value: 'password', label: 'User name and password' },
  { value: 'ssh', label: 'SSH key' },
];

const valuesOf = (r?: Repository) => ({
  url: r?.url ?? '',
  branch: r?.branch ?? 'main',
  path: r?.path ?? '',
  kind: r?.kind ?? 'spec',
  interval: r?.interval ?? '60s',
  known_hosts: r?.known_hosts ?? '',
  way: r?.credential ? 'keep' : 'none',
  token: '',
  username: '',
  password: '',
  ssh_key: '',
  hook: !r,
});

// What another session can have changed, and what the form calls it. No secret is among them.
const labels = { url: 'Address', branch: 'Branch', path: 'File', kind: 'Kind', interval: 'Look every', known_hosts: 'Known hosts' };

// Connect sends the whole configuration, as PUT takes it, with the ETag of the record that it began with: the
// page reads the record again while the form is open. The credential is only in this form.
function Connect({
  gatewayId,
  first,
  onClose,
  onSecret,
}: {
  gatewayId: string;
  first: Answer<Repository> | null;
  onClose: () => void;
  onSecret: (s: string) => void;
}) {
  const path = { gateway_id: gatewayId };
  const form = useEdit<Repository | undefined, ReturnType<typeof valuesOf>>({
    first: first ?? { data: undefined, etag: null },
    valuesOf,
    labels,
    read: () => api.get('/v1/gateways/{gateway_id}/repository', { path }),
  });
  const r = form.base;
  const v = form.values;
  const credential =
    v.way === 'token'
      ? { token: v.token }
      : v.way === 'password'
        ? { username: v.username, password: v.password }
        : v.way === 'ssh'
          ? { ssh_key: v.ssh_key }
          : v.way === 'none'
            ? null
            : undefined;
  const body = {
    url: v.url.trim(),
    branch: v.branch.trim(),
    path: v.path.trim(),
    kind: v.kind,
    interval: v.interval.trim() || null,
    ...(v.known_hosts.trim() && { known_hosts: v.known_hosts }),
    ...(credential !== undefined && { credential }),
    ...(v.hook && { hook_secret: 'auto' }),
  };
  const shown = { ...body, ...(credential && { credential: Object.fromEntries(Object.keys(credential).map((k) => [k, '…'])) }) };
  const cli = [
    'keygate repo set',
    `--gateway ${gatewayId}`,
    `--repository ${quote(body.url || 'URL')}`,
    `--branch ${quote(body.branch)}`,
    `--path ${quote(body.path || 'FILE')}`,
    `--kind ${body.kind}`,
    body.interval && `--interval ${quote(body.interval)}`,
    v.way === 'token' && '--token-file FILE',
    v.way === 'password' && `--username ${quote(v.username || 'NAME')} --password-file FILE`,
    v.way === 'ssh' && '--ssh-key-file FILE',
    v.way === 'none' && r?.credential && '--no-credential',
    body.known_hosts && '--known-hosts FILE',
    r && v.hook && '--hook-secret',
  ]
    .filter(Boolean)
    .join(' ');
  const submit = () =>
    form.save({
      send: (ifMatch) => api.put('/v1/gateways/{gateway_id}/repository', { path, body, ifMatch }),
      saved: async ({ data }) => {
        await changed('/v1/gateways');
        onClose();
        const secret = (data as { hook_secret?: string }).hook_secret;
        if (secret) onSecret(secret);
      },
    });
  return (
    <FormDialog
      title={r ? 'Edit the repository' : 'Connect a repository'}
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'PUT', path: `/v1/gateways/${gatewayId}/repository`, body: shown }}
      label={r ? 'Save' : 'Connect'}
      unchanged={Boolean(r) && !form.dirty}
      onClose={onClose}>
      <TextField
        label="Address"
        required
        mono
        value={v.url}
        onChange={(t) => form.set('url', t)}
        error={form.fieldError('url')}
        placeholder="https://git.example.com/team/api.git"
        hint={r ? 'Another address drops the stored credential.' : 'https or ssh'}
      />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Branch"
          required
          mono
          value={v.branch}
          onChange={(t) => form.set('branch', t)}
          error={form.fieldError('branch')}
        />
        <TextField
          label="File"
          required
          mono
          value={v.path}
          onChange={(t) => form.set('path', t)}
          error={form.fieldError('path')}
          placeholder="openapi.yaml"
        />
        <SelectField
          label="Kind"
          value={v.kind}
          onChange={(t) => form.set('kind', t as 'spec')}
          error={form.fieldError('kind')}
          options={[
            { value: 'spec', label: 'OpenAPI document' },
            { value: 'config', label: 'Configuration file' },
          ]}
        />
        <TextField
          label="Look every"
          mono
          value={v.interval}
          onChange={(t) => form.set('interval', t)}
          error={form.fieldError('interval')}
          hint="10s to 24h"
        />
        <SelectField
          label="Credential"
          value={v.way}
          onChange={(t) => form.set('way', t)}
          error={form.fieldError('credential')}
          options={credentials.filter((c) => c.value !== 'keep' || r?.credential)}
        />
        {v.way === 'token' && <TextField label="Access token" type="password" value={v.token} onChange={(t) => form.set('token', t)} />}
        {v.way === 'password' && (
          <>
            <TextField label="User name" value={v.username} onChange={(t) => form.set('username', t)} />
            <TextField label="Password" type="password" value={v.password} onChange={(t) => form.set('password', t)} />
          </>
        )}
      </div>
      {v.way === 'ssh' && (
        <>
          <AreaField
            label="SSH key"
            hint="A private key in PEM, without a passphrase"
            value={v.ssh_key}
            onChange={(t) => form.set('ssh_key', t)}
            rows={4}
          />
          <AreaField
            label="Known hosts"
            optional
            hint="Without them the host key is pinned at the first connection."
            value={v.known_hosts}
            onChange={(t) => form.set('known_hosts', t)}
            error={form.fieldError('known_hosts')}
            rows={2}
          />
        </>
      )}
      <CheckField
        label={r ? 'Create a new secret for the push hook' : 'Create a secret for a push hook'}
        hint="It is shown once, after this."
        checked={v.hook}
        onChange={(on) => form.set('hook', on)}
      />
    </FormDialog>
  );
}
