import { type InFlight, inFlightChoices, type LimitText } from '../lib/limit';
import { SelectField, TextField } from './form';

// LimitFields edits the parts of a rate limit.
export function LimitFields({
  value,
  onChange,
  error,
  daily = true,
}: {
  value: LimitText;
  onChange: (v: LimitText) => void;
  error?: (part: string) => string | undefined;
  daily?: boolean;
}) {
  return (
    <div className={`grid gap-3 ${daily ? 'sm:grid-cols-3' : 'sm:grid-cols-2'}`}>
      <TextField
        label="Sustained"
        optional
        mono
        placeholder="100/s"
        hint="Requests that pass steadily"
        value={value.sustained}
        error={error?.('sustained')}
        onChange={(sustained) => onChange({ ...value, sustained })}
      />
      <TextField
        label="Burst"
        optional
        mono
        placeholder="50/s"
        hint="How many may come at once"
        value={value.burst}
        error={error?.('burst')}
        onChange={(burst) => onChange({ ...value, burst })}
      />
      {daily && (
        <TextField
          label="Daily cap"
          optional
          mono
          placeholder="10000/day"
          hint="In a UTC day"
          value={value.daily}
          error={error?.('daily')}
          onChange={(d) => onChange({ ...value, daily: d })}
        />
      )}
    </div>
  );
}

// InFlightField edits how many requests may be in flight at once.
export function InFlightField({
  value,
  onChange,
  error,
  hint = 'At once, streams and upgrades included',
  optional = true,
}: {
  value: string;
  onChange: (text: string) => void;
  error?: string;
  hint?: string;
  optional?: boolean;
}) {
  return (
    <TextField
      label="Requests in flight"
      optional={optional}
      required={!optional}
      mono
      inputMode="numeric"
      placeholder="5"
      hint={hint}
      value={value}
      error={error}
      onChange={onChange}
    />
  );
}

// InFlightFields edits the limit of requests in flight of a route.
export function InFlightFields({ value, onChange, error }: { value: InFlight; onChange: (v: InFlight) => void; error?: string }) {
  return (
    <div className="grid gap-3 sm:grid-cols-2">
      <InFlightField value={value.max} error={error} onChange={(max) => onChange({ ...value, max })} />
      <SelectField label="Counted for" value={value.per} onChange={(per) => onChange({ ...value, per })} options={inFlightChoices} />
    </div>
  );
}
