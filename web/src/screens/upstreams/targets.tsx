import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { type Answer, api, type CallOptions } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { shareMeaning, useShares } from '../../api/shares';
import type { Target, Upstream } from '../../api/upstreams';
import { useEdit } from '../../lib/edit';
import { useForm } from '../../lib/form';
import { upstreamSettings } from '../../lib/settings';
import { quote } from '../../lib/shell';
import { inFlight, inFlightWords, isEjected, removedTargets, statusOf } from '../../lib/targetstatus';
import { healthHeaders, maxTargets, newTarget, type Resolve, targetBody, targetDraft, upstreamCommand } from '../../lib/upstream';
import { useUrl } from '../../lib/url';
import { AsCode, type Command } from '../../ui/ascode';
import { Button, Notice, Panel } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { AreaField, CheckField, SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { toast } from '../../ui/toast';
import { NodeStates, TargetState } from './state';

// Of says which upstream a target belongs to.
interface Of {
  gatewayId: string;
  answer: Answer<Upstream>;
}

const paths = {
  upstream: '/v1/gateways/{gateway_id}/upstreams/{upstream}',
  targets: '/v1/gateways/{gateway_id}/upstreams/{upstream}/targets',
  return: '/v1/gateways/{gateway_id}/upstreams/{upstream}/targets/return',
} as const;

const pathOf = ({ gatewayId, answer }: Of) => ({ gateway_id: gatewayId, upstream: answer.data.name });
const callOf = (of: Of, { url }: Target): CallOptions => ({ path: pathOf(of), query: { url } });

// commandOf returns a call about one target, or with "add" about a new one, in the forms without the dashboard.
const commandOf = (of: Of, words: string, flags: string[], call: Pick<Command, 'method' | 'body'>, url?: string): Command => ({
  cli: [upstreamCommand(words, of.gatewayId, of.answer.data.name), ...flags].join(' '),
  path: `/v1/gateways/${of.gatewayId}/upstreams/${of.answer.data.name}/targets${url === undefined ? '' : `?url=${encodeURIComponent(url)}`}`,
  ...call,
});

interface Open {
  action: 'edit' | 'remove';
  target: Target;
}

// Targets lists the targets of an upstream, and changes them one by one. That one is being added is in the URL (add).
export function Targets(of: Of) {
  const { targets, name } = of.answer.data;
  const part = `gateways/${of.gatewayId}/upstreams/${name}`;
  const write = useRefusal('write', part);
  const admin = useRefusal('admin', part);
  const [{ add }, change] = useUrl<'add'>();
  const [open, setOpen] = useState<Open | null>(null);
  const share = useShares({ gateway_id: of.gatewayId, upstream: name });
  const onClose = () => setOpen(null);
  return (
    <Panel
      title="Targets"
      actions={
        <Button
          size="sm"
          icon="plus"
          why={write ?? (targets.length >= maxTargets ? `It has ${maxTargets} targets, which is the most.` : null)}
          onClick={() => change({ add: '1' })}>
          Add a target
        </Button>
      }>
      <div className="flex flex-col gap-3">
        {targets.every((t) => t.drain) && (
          <Notice>
            {targets.length === 1 ? 'Its only target is draining' : 'All of its targets are draining'}: requests get a 502 until one takes
            part again.
          </Notice>
        )}
        {of.answer.data.all_unhealthy && <Notice>None of its targets is healthy: requests go to all that do not drain.</Notice>}
        <ul aria-label="Targets" className="flex flex-col divide-y divide-line">
          {targets.map((t) => (
            <li key={t.url} className="flex flex-wrap items-center gap-x-4 gap-y-2 py-2 first:pt-0 last:pb-0">
              <Link
                to="/gateways/$gatewayId/upstreams/$upstream/target"
                params={{ gatewayId: of.gatewayId, upstream: name }}
                search={{ url: t.url }}
                className="link min-w-0 flex-1 basis-64 truncate font-mono text-sm"
                title={t.url}>
                {t.url}
              </Link>
              <span className="flex items-center gap-2">
                <TargetState target={t} />
                <span className="text-muted">
                  Weight <span className="text-text tabular-nums">{String(t.weight)}</span>
                </span>
                {targets.length > 1 && (
                  <span className="text-muted" title={shareMeaning}>
                    Share, 1 h <span className="text-text tabular-nums">{share(t.url)}</span>
                  </span>
                )}
              </span>
              <span role="group" aria-label={t.url} className="flex gap-2">
                <Button size="sm" why={write} onClick={() => setOpen({ action: 'edit', target: t })}>
                  Edit
                </Button>
                <DrainAndReturn {...of} target={t} size="sm" />
                <Button
                  size="sm"
                  why={admin ?? (targets.length === 1 ? 'It is the last target, and an upstream needs one.' : null)}
                  onClick={() => setOpen({ action: 'remove', target: t })}>
                  Remove
                </Button>
              </span>
              <NodeStates url={t.url} list={statusOf(of.answer.data, t.url)} />
            </li>
          ))}
          {removedTargets(of.answer.data).map((url) => (
            <li key={url} className="flex flex-wrap items-center gap-x-4 gap-y-2 py-2 last:pb-0">
              <code className="min-w-0 flex-1 basis-64 truncate font-mono text-sm" title={url}>
                {url}
              </code>
              <span className="text-muted">Removed, {inFlightWords(inFlight(statusOf(of.answer.data, url)))}</span>
              <NodeStates url={url} list={statusOf(of.answer.data, url)} />
            </li>
          ))}
        </ul>
      </div>
      {add !== undefined && <AddTarget {...of} refused={write} onClose={() => change({ add: undefined }, true)} />}
      {open?.action === 'edit' && <EditTarget {...of} target={open.target} onClose={onClose} />}
      {open?.action === 'remove' && <RemoveTarget {...of} target={open.target} onClose={onClose} />}
    </Panel>
  );
}

const headersField = upstreamSettings.sections.flatMap((s) => s.fields).find((f) => f.path === 'headers');

// AddTarget asks for a target, and for the secrets of the upstream, which a new origin needs again.
function AddTarget({ refused, onClose, ...of }: Of & { refused: string | null; onClose: () => void }) {
  const u = of.answer.data;
  const form = useForm({ ...newTarget, headers: '', client_key: '', 'health.headers': '' });
  const v = form.values;
  const secrets = upstreamSettings.bodyOf(
    { ...(v.headers.trim() && { headers: v.headers }), ...(v.client_key.trim() && { client_key: v.client_key }) },
    {},
  );
  const target = targetBody(v);
  const health = healthHeaders(v['health.headers']);
  const body = { ...target, ...secrets, ...(health && { health }) };
  const flags = [
    quote(target.url || 'URL'),
    target.weight !== undefined && `--weight ${quote(String(target.weight))}`,
    target.backup && '--backup',
    target.resolve && `--resolve ${target.resolve}`,
    'headers' in secrets && '--headers-file FILE',
    'client_key' in secrets && '--client-key FILE',
    health && '--health-headers-file FILE',
  ].filter((f) => typeof f === 'string');
  const submit = () =>
    form.submit(async () => {
      await api.post(paths.targets, { path: pathOf(of), body });
      toast(`Target ${target.url} is added`);
      await changed('/v1/gateways');
      onClose();
    });
  return (
    <FormDialog
      title={`Add a target to “${u.name}”`}
      form={form}
      submit={submit}
      command={commandOf(of, 'targets add', flags, { method: 'POST', body: upstreamSettings.maskSecrets(body) })}
      label="Add the target"
      why={refused}
      onClose={onClose}>
      <TextField
        label="URL"
        required
        mono
        value={v.url}
        onChange={(url) => form.set('url', url)}
        error={form.fieldError('url')}
        placeholder="http://10.0.0.2:3000"
        hint="With the scheme of the other targets"
      />
      <WeightField hint={weightHint} value={v.weight} onChange={(weight) => form.set('weight', weight)} error={form.fieldError('weight')} />
      <ResolveField value={v.resolve} onChange={(resolve) => form.set('resolve', resolve)} error={form.fieldError('resolve')} />
      <BackupField value={v.backup} onChange={(backup) => form.set('backup', backup)} />
      {Object.keys(u.headers).length > 0 && (
        <AreaField
          label="Headers"
          optional
          rows={3}
          placeholder={headersField?.placeholder}
          hint={`The upstream has ${Object.keys(u.headers).join(', ')}. A target of another origin needs all of them again, one “Name: value” in a line, unless a certificate for the host proves that it is the same service.`}
          value={v.headers}
          onChange={(headers) => form.set('headers', headers)}
          error={form.fieldError('headers')}
        />
      )}
      {u.health && Object.keys(u.health.headers).length > 0 && (
        <AreaField
          label="Sent with checks"
          optional
          rows={3}
          placeholder="X-Probe: secret"
          hint={`The checks have ${Object.keys(u.health.headers).join(', ')}. A target of another origin needs all of them again, as it needs headers.`}
          value={v['health.headers']}
          onChange={(headers) => form.set('health.headers', headers)}
          error={form.fieldError('health.headers')}
        />
      )}
      {u.client_key !== null && (
        <AreaField
          label="Key of the client certificate"
          optional
          rows={3}
          hint="In PEM. A target of another origin needs it again, as it needs headers."
          value={v.client_key}
          onChange={(key) => form.set('client_key', key)}
          error={form.fieldError('client_key')}
        />
      )}
    </FormDialog>
  );
}

interface FieldOf<T> {
  value: T;
  onChange: (value: T) => void;
  error?: string;
}

// WeightField is the weight of a target.
export function WeightField({ hint, ...rest }: FieldOf<string> & { hint?: string }) {
  return <TextField label="Weight" mono inputMode="numeric" hint={hint} {...rest} />;
}

const weightHint = 'Share of the requests, compared with the other targets: 1 to 1000';

// BackupField says whether a target takes part only while no other one does.
export function BackupField({ value, onChange }: FieldOf<boolean>) {
  return <CheckField label="Backup" hint="It takes part only while no other target does." checked={value} onChange={onChange} />;
}

const resolves: { value: Resolve; label: string }[] = [
  { value: 'none', label: 'At each connect: one target' },
  { value: 'a', label: 'Again and again: each address is a target' },
  { value: 'srv', label: 'Again and again: each SRV record is a target' },
];

// ResolveField says how the name of a target is looked up.
export function ResolveField({ onChange, ...rest }: FieldOf<Resolve>) {
  return (
    <SelectField
      label="Look up its name"
      hint="SRV records have ports, so the URL has none; over https they need a host."
      onChange={(v) => onChange(v as Resolve)}
      options={resolves}
      {...rest}
    />
  );
}

interface Props extends Of {
  target: Target;
  onClose: () => void;
}

// EditTarget changes the weight of a target, whether it is a backup, or how its name is looked up.
function EditTarget({ target, onClose, ...of }: Props) {
  const form = useEdit({
    first: of.answer,
    valuesOf: (u: Upstream) => {
      const { weight, backup, resolve } = targetDraft(u.targets.find((t) => t.url === target.url) ?? target);
      return { weight, backup, resolve };
    },
    labels: { weight: 'Weight', backup: 'Backup', resolve: 'Look up its name' },
    show: String,
    read: () => api.get(paths.upstream, { path: pathOf(of) }),
    othersKept: true,
  });
  const v = form.values;
  const { weight = 1, backup = false, resolve = 'none' } = targetBody({ ...newTarget, ...v });
  const body = {
    ...('weight' in form.changes && { weight }),
    ...('backup' in form.changes && { backup }),
    ...('resolve' in form.changes && { resolve }),
  };
  const flags = [
    quote(target.url),
    ...('weight' in body ? [`--weight ${quote(String(weight))}`] : []),
    ...('backup' in body ? [`--backup=${backup}`] : []),
    ...('resolve' in body ? [`--resolve ${resolve}`] : []),
  ];
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch(paths.targets, { ...callOf(of, target), body, ifMatch }),
      saved: async () => {
        toast(`Target ${target.url} was saved`);
        await changed('/v1/gateways');
        onClose();
      },
    });
  return (
    <FormDialog
      title="Edit the target"
      form={form}
      submit={submit}
      command={commandOf(of, 'targets update', flags, { method: 'PATCH', body }, target.url)}
      onClose={onClose}>
      <code className="font-mono break-all">{target.url}</code>
      <WeightField hint={weightHint} value={v.weight} onChange={(w) => form.set('weight', w)} error={form.fieldError('weight')} />
      <ResolveField value={v.resolve} onChange={(r) => form.set('resolve', r)} error={form.fieldError('resolve')} />
      <BackupField value={v.backup} onChange={(b) => form.set('backup', b)} />
    </FormDialog>
  );
}

// setDrain drains a target, or lets it take part again.
async function setDrain(of: Of, target: Target, drain: boolean) {
  await api.patch(paths.targets, { ...callOf(of, target), body: { drain } });
  toast(drain ? `Target ${target.url} gets no more requests` : `Target ${target.url} takes part again`);
  await changed('/v1/gateways');
}

// DrainAndReturn drains a target or lets it take part again, and ends its ejection.
export function DrainAndReturn({ target, size, ...of }: Of & { target: Target; size?: 'sm' }) {
  const refused = useRefusal('write', `gateways/${of.gatewayId}/upstreams/${of.answer.data.name}`);
  const [Open, setOpen] = useState<typeof DrainTarget | null>(null);
  const open = (dialog: typeof DrainTarget) => () => setOpen(() => dialog);
  return (
    <>
      <Button size={size} why={refused} onClick={open(target.drain ? EndDraining : DrainTarget)}>
        {target.drain ? 'End draining' : 'Drain'}
      </Button>
      {isEjected(statusOf(of.answer.data, target.url)) && (
        <Button size={size} why={refused} onClick={open(ReturnTarget)}>
          Return
        </Button>
      )}
      {Open && <Open {...of} target={target} onClose={() => setOpen(null)} />}
    </>
  );
}

// DrainTarget says what draining does before it is done.
function DrainTarget({ target, onClose, ...of }: Props) {
  const left = of.answer.data.targets.filter((t) => !t.drain && t.url !== target.url);
  return (
    <ConfirmDialog title="Drain the target" action="Drain the target" onClose={onClose} run={() => setDrain(of, target, true)}>
      <p>
        From the moment this succeeds <b className="break-all">{target.url}</b> gets no more requests, on every node. Those in flight have
        the gateway’s drain timeout to end; the page shows how many are left, by node.
      </p>
      {left.length === 0 ? (
        <Notice>No other target of this upstream takes part: its requests get a 502 then.</Notice>
      ) : (
        left.every((t) => t.backup) && <Notice>Only backups are left then.</Notice>
      )}
      <div>
        <AsCode command={commandOf(of, 'targets drain', [quote(target.url)], { method: 'PATCH', body: { drain: true } }, target.url)} />
      </div>
    </ConfirmDialog>
  );
}

// EndDraining lets a target take part again.
function EndDraining({ target, onClose, ...of }: Props) {
  return (
    <ConfirmDialog harmless title="End draining" action="End draining" onClose={onClose} run={() => setDrain(of, target, false)}>
      <p>
        <b className="break-all">{target.url}</b> gets requests again from the moment this succeeds.
      </p>
      <div>
        <AsCode
          command={commandOf(
            of,
            'targets update',
            [quote(target.url), '--drain=false'],
            { method: 'PATCH', body: { drain: false } },
            target.url,
          )}
        />
      </div>
    </ConfirmDialog>
  );
}

// ReturnTarget ends an ejection by hand.
function ReturnTarget({ target, onClose, ...of }: Props) {
  const run = async () => {
    await api.post(paths.return, callOf(of, target));
    toast(`Target ${target.url} is returned`);
    await changed('/v1/gateways');
  };
  const { path, ...command } = commandOf(of, 'targets return', [quote(target.url)], { method: 'POST' }, target.url);
  return (
    <ConfirmDialog harmless title="Return the target" action="Return the target" onClose={onClose} run={run}>
      <p>
        The ejection of <b className="break-all">{target.url}</b> ends on every node, and it gets requests again. If they fail, it is
        ejected anew.
      </p>
      <div>
        <AsCode command={{ ...command, path: path.replace('/targets?', '/targets/return?') }} />
      </div>
    </ConfirmDialog>
  );
}

// RemoveTarget names the target that goes, and says whether it still gets requests.
function RemoveTarget({ target, onClose, ...of }: Props) {
  const run = async () => {
    await api.delete(paths.targets, callOf(of, target));
    toast(`Target ${target.url} is removed`);
    await changed('/v1/gateways');
  };
  return (
    <ConfirmDialog title="Remove the target" action="Remove the target" onClose={onClose} run={run}>
      <p>
        <b className="break-all">{target.url}</b> is no longer a target of the upstream <b>{of.answer.data.name}</b>. It gets no more
        requests{target.drain && ', as while it is draining'}; those in flight have the gateway’s drain timeout to end.
      </p>
      <div>
        <AsCode command={commandOf(of, 'targets remove', [quote(target.url)], { method: 'DELETE' }, target.url)} />
      </div>
    </ConfirmDialog>
  );
}
