import { serverNow } from '../../api/client';
import { Button } from '../../ui/basic';
import { exact } from '../../lib/time';
import { Field, inputClass } from '../../ui/form';

// lastDay returns the last date on which a key with that expiry is valid: a key that expires at a UTC midnight
// is not valid on the day that begins then.
export function lastDay(expires: string): string {
  return expires.length > 10 ? new Date(Date.parse(expires) - 1).toISOString().slice(0, 10) : expires;
}

const atMidnight = (expires: string) => expires.length <= 10 || Date.parse(expires) % 86_400_000 === 0;

const presets = [
  { label: '30 days', days: 30 },
  { label: '90 days', days: 90 },
  { label: '1 year', days: 365 },
];

// ExpiryField takes the last date on which a key is valid (contract, section 2), or "" for never. It begins
// with the expiry of a record, which is a time.
export function ExpiryField({
  value,
  onChange,
  error,
  label = 'Expires',
  unset = 'Without a date it does not expire.',
  clear = 'Never',
}: {
  value: string;
  onChange: (v: string) => void;
  error?: string;
  label?: string;
  unset?: string; // what it means that there is no date
  clear?: string; // the button that removes the date
}) {
  const day = (days: number) => new Date(serverNow() + days * 86_400_000).toISOString().slice(0, 10);
  return (
    <Field
      label={label}
      optional
      error={error}
      hint={!value ? unset : atMidnight(value) ? 'Valid through that day, in UTC.' : `Expires at ${exact(value)}.`}>
      {(p) => (
        <div className="flex flex-wrap gap-2">
          <input
            {...p}
            type="date"
            value={lastDay(value)}
            min={day(0)}
            className={`${inputClass} max-w-44`}
            onChange={(e) => onChange(e.target.value)}
          />
          {presets.map((o) => (
            <Button key={o.days} onClick={() => onChange(day(o.days))}>
              {o.label}
            </Button>
          ))}
          {value && (
            <Button kind="quiet" onClick={() => onChange('')}>
              {clear}
            </Button>
          )}
        </div>
      )}
    </Field>
  );
}
