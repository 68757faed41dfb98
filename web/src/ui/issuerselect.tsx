import { useIssuers } from '../api/issuers';
import { type Field, list } from '../lib/settings';
import { ChoicesField, TextField } from './form';

const most = 16; // issuers that are offered; more of them are typed

// IssuersField chooses the issuers that a gateway names.
export function IssuersField({
  field,
  value,
  error,
  onChange,
}: {
  field: Field;
  value: string;
  error?: string;
  onChange: (v: string) => void;
}) {
  const { issuers, more, loaded } = useIssuers();
  const chosen = list(value);
  const names = issuers.map((i) => i.name);
  if (!loaded || more || names.length > most || names.length === 0)
    return (
      <TextField
        label={field.label}
        hint={field.hint}
        placeholder={field.placeholder}
        mono
        value={value}
        error={error}
        onChange={onChange}
      />
    );
  return (
    <div className="col-span-full">
      <ChoicesField
        label={field.label}
        hint="Routes whose callers need a token, or a key or a token, take those of these issuers."
        choices={[...names, ...chosen.filter((n) => !names.includes(n))]}
        value={chosen}
        error={error}
        onChange={(now) => onChange(now.join(', '))}
      />
    </div>
  );
}
