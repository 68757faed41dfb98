import { serverNow } from '../../api/client';
import { Button } from '../../ui/basic';
import { Field, inputClass } from '../../ui/form';

const presets = [{ label: '30 days', days: 30 }, { label: '90 days', days: 90 }, { label: '1 year', days: 365 }];

// ExpiryField takes the last date on which a key is valid (contract, section 2), or "" for never.
export function ExpiryField({ value, onChange, error, label = 'Expires' }: { value: string; onChange: (v: string) => void; error?: string; label?: string }) {
  const day = (days: number) => new Date(serverNow() + days * 86_400_000).toISOString().slice(0, 10);
  return (
    <Field label={label} optional error={error} hint={value ? 'Valid through that day, in UTC.' : 'Without a date it does not expire.'}>
      {(p) => (
        <div className="flex flex-wrap gap-2">
          <input {...p} type="date" value={value.slice(0, 10)} min={day(0)} className={`${inputClass} max-w-44`} onChange={(e) => onChange(e.target.value)} />
          {presets.map((o) => <Button key={o.days} onClick={() => onChange(day(o.days))}>{o.label}</Button>)}
          {value && <Button kind="quiet" onClick={() => onChange('')}>Never</Button>}
        </div>
      )}
    </Field>
  );
}
