import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { doubled, limitFlag, limitText, type LimitText, limitValue, perOf, perPart, routeFlags, spellLimit } from '../../lib/limit';
import { quote } from '../../lib/shell';
import { LimitFields } from '../../ui/limit';
import { toast } from '../../ui/toast';
import { Simulation } from '../gateways/simulation';
import { FormDialog } from '../../ui/formdialog';

// A Raisable is the limit that refused a request, with the record that has it.
export type Raisable = { daily: boolean; gatewayId: string } & (
  | { kind: 'route'; first: Answer<Schemas['Route']> }
  | { kind: 'key'; first: Answer<Schemas['Key']> }
  | { kind: 'gateway'; first: Answer<Schemas['Gateway']> }
  | { kind: 'anonymous'; first: Answer<Schemas['Gateway']> }
);

// nowOf returns the limit as its record has it.
export function nowOf(r: Raisable): LimitText {
  if (r.kind === 'gateway') return limitText(r.first.data.global_rate_limit);
  if (r.kind === 'anonymous') return limitText(r.first.data.anonymous_limit ?? null);
  return limitText(r.first.data.rate_limit);
}

// rateOf returns a limit in the form of its record.
function rateOf(r: Raisable, limit: LimitText) {
  const value = limitValue(limit);
  if (value === null || r.kind === 'key') return value;
  const parts = typeof value === 'string' ? { sustained: value } : value;
  return r.kind === 'route' ? { ...parts, ...perPart(perOf(r.first.data.rate_limit)) } : parts;
}

// Allows says whose limit it is, and what it allows.
function Allows({ of: r, limit }: { of: Raisable; limit: LimitText }) {
  const rate = <b>{spellLimit(limit)}</b>;
  if (r.kind === 'gateway')
    return (
      <>
        The gateway <bdi>“{r.first.data.name}”</bdi> allows {rate}, for all keys and routes together.
      </>
    );
  if (r.kind === 'anonymous')
    return (
      <>
        The gateway <bdi>“{r.first.data.name}”</bdi> allows each client address {rate} on its public routes.
      </>
    );
  if (r.kind === 'key')
    return (
      <>
        The key <bdi>“{r.first.data.name}”</bdi> allows {rate}.
      </>
    );
  const { methods, path, rate_limit } = r.first.data;
  const route = (
    <code className="font-mono text-sm break-all">
      {methods.join(', ')} {path}
    </code>
  );
  return rate_limit?.per ? (
    <>
      The route {route} allows each {rate_limit.per === 'key' ? 'key' : 'client address'} {rate}.
    </>
  ) : (
    <>
      The route {route} allows {rate}, for all callers together.
    </>
  );
}

// commandOf is the command that does the same.
function commandOf(r: Raisable, limit: LimitText): string {
  if (r.kind === 'key') return `keygate keys update ${r.first.data.key_id} --rate-limit ${quote(limitFlag(limit) ?? '')}`;
  if (r.kind === 'gateway')
    return [
      `keygate gateways update ${r.gatewayId}`,
      limit.sustained && `--global-rate-limit ${quote(limit.sustained)}`,
      limit.burst && `--global-burst ${quote(limit.burst)}`,
    ]
      .filter(Boolean)
      .join(' ');
  if (r.kind === 'anonymous')
    return [
      `keygate gateways update ${r.gatewayId}`,
      limit.sustained && `--anonymous-limit ${quote(limit.sustained)}`,
      limit.burst && `--anonymous-burst ${quote(limit.burst)}`,
    ]
      .filter(Boolean)
      .join(' ');
  const per = perOf(r.first.data.rate_limit);
  return ['keygate routes update', `--gateway ${r.gatewayId}`, r.first.data.route_id, ...routeFlags(limit, per, nowOf(r), per)].join(' ');
}

// RaiseLimit proposes twice the limit, says what that would have refused, and saves it.
export function RaiseLimit({ of: r, onClose }: { of: Raisable; onClose: () => void }) {
  const now = nowOf(r);
  const form = useForm({ limit: doubled(now, r.daily) });
  const { limit } = form.values;
  const rate = rateOf(r, limit);
  const field = r.kind === 'gateway' ? 'global_rate_limit' : r.kind === 'anonymous' ? 'anonymous_limit' : 'rate_limit';
  const body = { [field]: rate };
  const call =
    r.kind === 'route'
      ? `/v1/gateways/${r.gatewayId}/routes/${r.first.data.route_id}`
      : r.kind === 'key'
        ? `/v1/keys/${r.first.data.key_id}`
        : `/v1/gateways/${r.gatewayId}`;
  const save = async () => {
    const ifMatch = r.first.etag;
    const gateway_id = r.gatewayId;
    if (r.kind === 'route')
      await api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', {
        path: { gateway_id, route_id: r.first.data.route_id },
        body,
        ifMatch,
      });
    else if (r.kind === 'key') await api.patch('/v1/keys/{key_id}', { path: { key_id: r.first.data.key_id }, body, ifMatch });
    else await api.patch('/v1/gateways/{gateway_id}', { path: { gateway_id }, body, ifMatch });
    toast(`The limit is ${spellLimit(limit)} now`);
    await changed('/v1/gateways', '/v1/keys');
    onClose();
  };
  return (
    <FormDialog
      title="Raise this limit"
      wide
      form={form}
      submit={() => {
        void form.submit(save);
      }}
      command={{ cli: commandOf(r, limit), method: 'PATCH', path: call, body }}
      label="Raise the limit"
      unchanged={JSON.stringify(limit) === JSON.stringify(now)}
      onClose={onClose}>
      <p className="break-words">
        <Allows of={r} limit={now} /> This form proposes twice as much.
      </p>
      <LimitFields
        value={limit}
        onChange={(l) => form.set('limit', l)}
        error={form.limitError(field)}
        daily={r.kind === 'key' || (r.kind === 'route' && perOf(r.first.data.rate_limit) !== 'address')}
      />
      <Simulation
        gatewayId={r.gatewayId}
        of={r.kind === 'route' ? { route_id: r.first.data.route_id } : r.kind === 'key' ? { key_id: r.first.data.key_id } : {}}
        rate={r.kind === 'anonymous' && rate !== null ? { ...(rate as object), per: 'address' } : rate}
      />
    </FormDialog>
  );
}
