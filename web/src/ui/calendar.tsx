import { useId } from 'react';
import type { Calendar } from '../lib/calendar';
import { TextField } from './form';

// CalendarFields edits how quotas divide time. What is not set is that of none.
export function CalendarFields({
  value,
  none,
  set,
  error,
}: {
  value: Calendar;
  none: Calendar;
  set: (name: keyof Calendar, text: string) => void;
  error: (name: keyof Calendar) => string | undefined;
}) {
  const zones = useId();
  return (
    <>
      <TextField
        label="Time zone"
        optional
        list={zones}
        maxLength={64}
        placeholder={none.time_zone}
        hint="Of the days, weeks and months"
        value={value.time_zone}
        error={error('time_zone')}
        onChange={(t) => set('time_zone', t)}
      />
      <datalist id={zones}>
        {Intl.supportedValuesOf('timeZone').map((z) => (
          <option key={z} value={z} />
        ))}
      </datalist>
      <TextField
        label="Months begin on day"
        optional
        inputMode="numeric"
        placeholder={none.anchor_day}
        hint="1 to 28"
        value={value.anchor_day}
        error={error('anchor_day')}
        onChange={(t) => set('anchor_day', t)}
      />
    </>
  );
}
