import { useNavigate } from '@tanstack/react-router';
import { useId, useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useList, warn } from '../../api/hooks';
import { canaryBody, canaryDefaults, canaryFlags, type CanaryValues, leastTime } from '../../lib/canary';
import { useForm } from '../../lib/form';
import { defaultUpstream } from '../../lib/upstream';
import { CheckField, inputClass, SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { useFinding } from '../../ui/recordselect';
import { toast } from '../../ui/toast';

interface Props {
  gatewayId: string;
  names: string[]; // of the upstreams; none before they are read
  why: string | null; // why none can be started
  onClose: () => void;
}

// StartCanary asks to which upstream a canary sends requests, of which routes, and when it is aborted.
export function StartCanary({ gatewayId, names, why, onClose }: Props) {
  const navigate = useNavigate();
  const form = useForm<CanaryValues>({ ...canaryDefaults, upstream: '', which: 'all', routes: [], when_done: 'hold' });
  const { set } = form;
  const v = { ...form.values, upstream: form.values.upstream || (names.find((n) => n !== defaultUpstream) ?? defaultUpstream) };
  const body = canaryBody(v);
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/gateways/{gateway_id}/canaries', { path: { gateway_id: gatewayId }, body });
      warn(data.canary_id, data.warnings ?? []);
      toast(`A canary sends ${data.steps[0]} % of the callers to “${data.upstream}”`);
      await changed('/v1/gateways');
      await navigate({ to: '/gateways/$gatewayId/canaries/$canaryId', params: { gatewayId, canaryId: data.canary_id }, replace: true });
    });
  const least = leastTime(v.steps, v.hold);
  const steps = form.errorsAt((f) => f === 'steps' || f.startsWith('steps['));
  const routes = form.errorAt((f) => f === 'routes' || f.startsWith('routes['));
  const cli = [`keygate canary start --gateway ${gatewayId}`, ...canaryFlags(v)].join(' ');
  return (
    <FormDialog
      title="Start a canary"
      wide
      form={form}
      submit={submit}
      command={{ cli, method: 'POST', path: `/v1/gateways/${gatewayId}/canaries`, body }}
      label="Start the canary"
      why={why}
      onClose={onClose}>
      <div className="grid gap-4 sm:grid-cols-2">
        <SelectField
          label="Upstream"
          hint="It gets a growing share of the callers"
          value={v.upstream}
          onChange={(u) => set('upstream', u)}
          error={form.fieldError('upstream')}
          options={names.map((n) => ({ value: n, label: n }))}
        />
        <SelectField
          label="Routes"
          hint="They have one upstream in common, which gets the other callers"
          value={v.which}
          onChange={(w) => set('which', w as CanaryValues['which'])}
          error={routes}
          options={[
            { value: 'all', label: 'All with another upstream' },
            { value: 'some', label: 'Some' },
          ]}
        />
      </div>
      {v.which === 'some' && (
        <RouteChoices gatewayId={gatewayId} upstream={v.upstream} value={v.routes} onChange={(r) => set('routes', r)} />
      )}
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Steps"
          required
          mono
          hint="Percent of the callers, each step more than the one before"
          value={v.steps}
          onChange={(t) => set('steps', t)}
          error={steps.map((f) => f.message.replace(/^/, stepOf(f.field))).join('\n') || undefined}
        />
        <TextField
          label="Length of a step"
          required
          mono
          hint={`1m to 24h, and longer until both sides have enough requests${least && `. All together: at least ${least}`}`}
          value={v.hold}
          onChange={(t) => set('hold', t)}
          error={form.fieldError('hold')}
        />
        <TextField
          label="Requests of each side"
          required
          mono
          inputMode="numeric"
          hint="That a step needs. An abort never waits for them."
          value={v.min_requests}
          onChange={(t) => set('min_requests', t)}
          error={form.fieldError('min_requests')}
        />
        <SelectField
          label="After the last step"
          hint="With a repository or a file, it is held with the lines to commit"
          value={v.when_done}
          onChange={(w) => set('when_done', w as CanaryValues['when_done'])}
          error={form.fieldError('when_done')}
          options={[
            { value: 'hold', label: 'Hold, until it is promoted by hand' },
            { value: 'promote', label: 'Promote: the routes get the upstream' },
          ]}
        />
      </div>
      <fieldset className="grid gap-4 sm:grid-cols-2">
        <legend className="mb-1 font-semibold">When it is aborted</legend>
        <TextField
          label="More errors"
          mono
          inputMode="decimal"
          hint="Percentage points that it may have more bad requests than the other side. Empty: never for errors"
          value={v.errors}
          onChange={(t) => set('errors', t)}
          error={form.errorAt((f) => f === 'abort' || f.startsWith('abort.errors'))}
        />
        <TextField
          label="Slower"
          mono
          inputMode="decimal"
          placeholder="1.5"
          hint="How many times the other side's p95 it may take, in 19 of 20 requests. Empty: never for latency"
          value={v.latency}
          onChange={(t) => set('latency', t)}
          error={form.errorAt((f) => f.startsWith('abort.latency'))}
        />
      </fieldset>
    </FormDialog>
  );
}

// stepOf begins what is said of a step: "Step 2 must be …".
function stepOf(field: string): string {
  const n = /^steps\[(\d+)\]/.exec(field)?.[1];
  return n === undefined ? '' : `Step ${Number(n) + 1} `;
}

type Route = Schemas['Route'];

const nameOf = ({ methods, path }: Route): string => `${methods.join(', ')} ${path}`;

// RouteChoices checks routes that do not have the upstream. Those that were chosen stay when others are searched for.
function RouteChoices({
  gatewayId,
  upstream,
  value,
  onChange,
}: {
  gatewayId: string;
  upstream: string;
  value: string[];
  onChange: (ids: string[]) => void;
}) {
  const id = useId();
  const finding = useFinding();
  const [chosen, setChosen] = useState<Route[]>([]);
  const query = useList('/v1/gateways/{gateway_id}/routes', { path: { gateway_id: gatewayId }, query: { q: finding.q, limit: 20 } });
  const found = (query.data?.data.data ?? []).filter((r) => r.upstream !== upstream);
  const listed = [...chosen.filter((r) => value.includes(r.route_id) && !found.some((f) => f.route_id === r.route_id)), ...found];
  const more = Boolean(query.data?.data.next_cursor);
  return (
    <fieldset className="flex min-w-0 flex-col gap-2">
      <legend className="mb-1 font-medium">Which routes</legend>
      {(more || finding.text !== '') && (
        <input
          id={id}
          type="search"
          aria-label="Search routes by path"
          placeholder="Search routes by path"
          value={finding.text}
          onChange={(e) => finding.setText(e.target.value)}
          className={inputClass}
        />
      )}
      <div className="grid gap-x-4 gap-y-2 sm:grid-cols-2">
        {listed.map((r) => (
          <CheckField
            key={r.route_id}
            label={<span className="font-mono text-sm font-normal break-all">{nameOf(r)}</span>}
            checked={value.includes(r.route_id)}
            onChange={(on) => {
              if (on) setChosen([...chosen.filter((c) => c.route_id !== r.route_id), r]);
              onChange(on ? [...value, r.route_id] : value.filter((other) => other !== r.route_id));
            }}
          />
        ))}
      </div>
      {query.data && found.length === 0 && (
        <p className="text-muted">{finding.q ? 'No route matches.' : `No route has another upstream than ${upstream}.`}</p>
      )}
      {more && <p className="text-sm text-muted">There are more routes: search for them by path.</p>}
    </fieldset>
  );
}
