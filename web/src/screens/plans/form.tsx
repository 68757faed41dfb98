import { useId } from 'react';
import { usePlans } from '../../api/plans';
import { type Calendar, calendarBody } from '../../lib/calendar';
import type { useForm } from '../../lib/form';
import { exactBytes, type LimitDraft, limitBody, maxLimits, newLimit, ofKind } from '../../lib/plan';
import { windows } from '../../lib/quota';
import { isBytes, meterProblem, meterSuggestions, ownMeter } from '../../lib/usage';
import { Button, IconButton, Panel } from '../../ui/basic';
import { CalendarFields } from '../../ui/calendar';
import { AreaField, SelectField, TextField } from '../../ui/form';
import { GatewayField } from '../../ui/gatewayselect';
import { InFlightField } from '../../ui/limit';
import { PlanSimulation } from './simulation';

export interface PlanValues extends Calendar, Record<string, unknown> {
  name: string;
  title: string;
  limits: LimitDraft[];
}

// A FormOf has what the fields need of a form.
type FormOf = Pick<ReturnType<typeof useForm<PlanValues>>, 'values' | 'set' | 'errorAt' | 'fieldError'>;

// PlanFields edits a plan. Its limits are sent as a whole.
export function PlanFields({ form }: { form: FormOf }) {
  const { values: v, set } = form;
  const change = (n: number, part: Partial<LimitDraft>) =>
    set(
      'limits',
      v.limits.map((l, i) => (i === n ? { ...l, ...part } : l)),
    );
  const meters = useId();
  const suggested = meterSuggestions(usePlans().plans);
  const ofAll = form.errorAt((f) => f === 'limits');
  return (
    <>
      <Panel title="Plan">
        <div className="grid gap-4 sm:grid-cols-2">
          <TextField
            label="Name"
            autoFocus
            required
            mono
            maxLength={64}
            value={v.name}
            onChange={(t) => set('name', t)}
            error={form.fieldError('name')}
            placeholder="pro"
            hint="Of a-z, 0-9, - and _. Keys, owners and gateways are given the plan by it."
          />
          <TextField
            label="Title"
            optional
            maxLength={255}
            value={v.title}
            onChange={(t) => set('title', t)}
            error={form.fieldError('title')}
            placeholder="Professional"
            hint="For people"
          />
        </div>
      </Panel>
      <Panel title="Limits">
        <div className="flex flex-col gap-4">
          <p className="text-muted">A request must pass all limits that apply to it, beside those of its key, its route and its gateway.</p>
          {v.limits.map((limit, n) => (
            <LimitEditor
              key={n}
              number={n + 1}
              limit={limit}
              meters={meters}
              onChange={(part) => change(n, part)}
              onRemove={() =>
                set(
                  'limits',
                  v.limits.filter((_, i) => i !== n),
                )
              }
              error={(part) =>
                form.errorAt(
                  (f) => f === `limits[${n}].${part}` || f.startsWith(`limits[${n}].${part}[`) || (part === 'name' && f === `limits[${n}]`),
                )
              }
            />
          ))}
          <datalist id={meters}>
            {suggested.map((m) => (
              <option key={m} value={m} />
            ))}
          </datalist>
          {ofAll && (
            <p role="alert" className="text-sm text-bad">
              Limits {ofAll}
            </p>
          )}
          {v.limits.length < maxLimits && (
            <div>
              <Button size="sm" icon="plus" onClick={() => set('limits', [...v.limits, newLimit()])}>
                Add a limit
              </Button>
            </div>
          )}
        </div>
      </Panel>
      {v.limits.some((l) => l.kind === 'quota') && (
        <Panel title="Calendar of the quotas">
          <div className="grid gap-4 sm:grid-cols-2">
            <CalendarFields
              value={v}
              none={{ time_zone: 'UTC', anchor_day: '1' }}
              set={(name, text) => set(name, text)}
              error={(name) => form.fieldError(name)}
            />
          </div>
        </Panel>
      )}
      <PlanSimulation limits={v.limits.map(limitBody)} calendar={calendarBody(v)} />
    </>
  );
}

interface LimitProps {
  limit: LimitDraft;
  onChange: (part: Partial<LimitDraft>) => void;
  error: (part: string) => string | undefined;
}

// unitsName is what the fields of a limit call what it counts.
const unitsName = (meter: string): string => (meter === 'requests' ? 'Requests' : isBytes(meter) ? 'Bytes' : 'Units');

function RateFields({ limit, onChange, error }: LimitProps) {
  const [steadily, atOnce] = [limit.sustained, limit.burst].map((text) => exactBytes(text, limit.meter));
  return (
    <>
      <TextField
        label="Sustained"
        required
        mono
        placeholder={isBytes(limit.meter) ? '10 MiB/s' : '600/min'}
        hint={`${ownMeter(limit.meter) || unitsName(limit.meter)} that pass steadily${steadily && `: ${steadily}`}`}
        value={limit.sustained}
        error={error('sustained')}
        onChange={(sustained) => onChange({ sustained })}
      />
      <TextField
        label="Burst"
        optional
        mono
        placeholder={isBytes(limit.meter) ? '50 MiB/s' : '50/s'}
        hint={`How many may come at once${atOnce && `: ${atOnce}`}`}
        value={limit.burst}
        error={error('burst')}
        onChange={(burst) => onChange({ burst })}
      />
    </>
  );
}

function QuotaFields({ limit, onChange, error }: LimitProps) {
  const what = exactBytes(limit.most, limit.meter) || ownMeter(limit.meter);
  return (
    <>
      <TextField
        label={unitsName(limit.meter)}
        required
        mono
        inputMode={isBytes(limit.meter) ? 'text' : 'numeric'}
        placeholder={isBytes(limit.meter) ? '10 GiB' : '100000'}
        hint={what ? `${what} in each window` : 'In each window'}
        value={limit.most}
        error={error('quota')}
        onChange={(most) => onChange({ most })}
      />
      <SelectField label="Window" value={limit.unit} onChange={(unit) => onChange({ unit })} options={windows} />
      <SelectField
        label="Beyond it"
        value={limit.overage}
        error={error('overage')}
        onChange={(overage) => onChange({ overage })}
        options={[
          { value: 'refuse', label: 'Refuse requests' },
          { value: 'allow', label: 'Let them pass, and count them' },
        ]}
      />
      <TextField
        label="Warns at"
        optional
        mono
        placeholder="80, 100"
        hint="Percentages that raise an event"
        value={limit.warn_at}
        error={error('warn_at')}
        onChange={(warn_at) => onChange({ warn_at })}
      />
    </>
  );
}

const kinds: { value: LimitDraft['kind']; label: string; hint: string }[] = [
  { value: 'rate', label: 'Rate', hint: 'So many each second, minute or hour' },
  { value: 'quota', label: 'Quota', hint: 'So many in each calendar window' },
  { value: 'concurrency', label: 'Requests in flight', hint: 'So many at the same time' },
];

const meterHints: Record<string, string> = {
  requests: 'Requests, whatever their size',
  bytes_in: 'Bytes of the bodies of requests',
  bytes_out: 'Bytes of the bodies of responses',
};

// LimitEditor edits a limit. meters is the identifier of the list of meters to suggest.
function LimitEditor({
  number,
  limit,
  meters,
  onChange,
  onRemove,
  error,
}: LimitProps & { number: number; meters: string; onRemove: () => void }) {
  return (
    <fieldset className="rounded-md border border-line p-3">
      <legend className="sr-only">Limit {number}</legend>
      {/* Each field has the room that the longest choice of a select takes. */}
      <div className="flex flex-col items-end gap-2 sm:flex-row sm:items-start">
        <div className="grid w-full min-w-0 flex-1 grid-cols-[repeat(auto-fill,minmax(min(100%,19rem),1fr))] gap-3">
          <TextField
            label="Name"
            required
            mono
            maxLength={32}
            placeholder="per-minute"
            hint="In the plan; callers see it in a 429"
            value={limit.name}
            error={error('name')}
            onChange={(name) => onChange({ name })}
          />
          <SelectField
            label="Kind"
            value={limit.kind}
            hint={kinds.find((k) => k.value === limit.kind)?.hint}
            onChange={(kind) => onChange(ofKind(limit, kind as LimitDraft['kind']))}
            options={kinds}
          />
          {limit.kind !== 'concurrency' && (
            <TextField
              label="Meter"
              required
              mono
              list={meters}
              maxLength={32}
              placeholder="requests"
              hint={meterHints[limit.meter] ?? 'What the costs of routes count by this name'}
              value={limit.meter}
              error={error('meter') ?? (limit.meter ? meterProblem(limit.meter) : undefined)}
              onChange={(meter) => onChange({ meter })}
            />
          )}
          <SelectField
            label="Counts"
            value={limit.per}
            error={error('per')}
            onChange={(per) => onChange({ per })}
            options={[
              { value: 'key', label: 'Each key on its own' },
              { value: 'owner', label: 'All keys of an owner together' },
            ]}
          />
          {limit.kind === 'quota' && <QuotaFields limit={limit} onChange={onChange} error={error} />}
          {limit.kind === 'rate' && <RateFields limit={limit} onChange={onChange} error={error} />}
          {limit.kind === 'concurrency' && (
            <InFlightField
              optional={false}
              value={limit.in_flight}
              error={error('concurrency')}
              onChange={(in_flight) => onChange({ in_flight })}
            />
          )}
          <GatewayField
            value={limit.gateway_id}
            none="All gateways"
            error={error('gateway_id')}
            onChange={(gateway_id) => onChange({ gateway_id })}
          />
          {limit.gateway_id && (
            <AreaField
              label="Routes"
              optional
              rows={2}
              placeholder="/orders/*"
              hint="A path in each line; none for all"
              value={limit.routes}
              error={error('routes')}
              onChange={(routes) => onChange({ routes })}
            />
          )}
        </div>
        <IconButton icon="cross" label={`Remove limit ${number}`} onClick={onRemove} />
      </div>
    </fieldset>
  );
}
