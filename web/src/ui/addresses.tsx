import { list } from '../lib/settings';
import { quote } from '../lib/shell';
import { TextField } from './form';

// AddressFields edits the networks whose addresses may use a record, and may not, each separated by commas.
export function AddressFields({
  allow,
  deny,
  onAllow,
  onDeny,
  errorOf,
}: {
  allow: string;
  deny: string;
  onAllow: (t: string) => void;
  onDeny: (t: string) => void;
  errorOf: (field: string) => string | undefined;
}) {
  return (
    <div className="grid gap-4 sm:grid-cols-2">
      <TextField
        label="Allowed addresses"
        optional
        mono
        value={allow}
        onChange={onAllow}
        error={errorOf('allow_ips')}
        placeholder="203.0.113.0/24"
        hint="Networks, separated by commas. All other addresses are then refused."
      />
      <TextField
        label="Denied addresses"
        optional
        mono
        value={deny}
        onChange={onDeny}
        error={errorOf('deny_ips')}
        placeholder="198.51.100.0/24"
        hint="The longest prefix decides, and denies if both lists have it."
      />
    </div>
  );
}

// networkFlags are the flags for a list of networks; with an empty value for an empty one.
export const networkFlags = (flag: string, text: string): string[] =>
  list(text).length === 0 ? [`--${flag} ''`] : list(text).map((n) => `--${flag} ${quote(n)}`);
