import { quote } from '../lib/shell';
import { Button, IconButton } from './basic';
import { Field, inputClass } from './form';

export type Pair = [name: string, value: string];

// Pairs edits names and values, such as metadata.
export function Pairs({
  label,
  value,
  onChange,
  max = 16,
  error,
  hint,
  secret,
}: {
  label: string;
  value: Pair[];
  onChange: (v: Pair[]) => void;
  max?: number;
  error?: string;
  hint?: string;
  secret?: boolean;
}) {
  const set = (n: number, pair: Pair) => onChange(value.map((p, i) => (i === n ? pair : p)));
  return (
    <Field label={label} optional hint={hint} error={error}>
      {() => (
        <div role="group" aria-label={label} className="flex flex-col gap-2">
          {value.map(([name, text], n) => (
            <div key={n} className="flex gap-2">
              <input
                aria-label={`${label} ${n + 1}: name`}
                placeholder="Name"
                value={name}
                autoComplete="off"
                className={inputClass}
                onChange={(e) => set(n, [e.target.value, text])}
              />
              <input
                aria-label={`${label} ${n + 1}: value`}
                placeholder="Value"
                value={text}
                autoComplete="off"
                type={secret ? 'password' : 'text'}
                className={inputClass}
                onChange={(e) => set(n, [name, e.target.value])}
              />
              <IconButton
                icon="cross"
                label={`Remove ${name || `line ${n + 1}`}`}
                onClick={() => onChange(value.filter((_, i) => i !== n))}
              />
            </div>
          ))}
          {value.length < max && (
            <div>
              <Button size="sm" icon="plus" onClick={() => onChange([...value, ['', '']])}>
                Add
              </Button>
            </div>
          )}
        </div>
      )}
    </Field>
  );
}

// toRecord returns the pairs that have a name.
export const toRecord = (pairs: Pair[]): Record<string, string> => Object.fromEntries(pairs.filter(([name]) => name.trim() !== ''));

// showPairs is pairs as text.
export const showPairs = (pairs: Pair[]): string => pairs.map((p) => p.join('=')).join(', ') || 'empty';

// addFlags are the flags that give a new record metadata.
export const addFlags = (metadata: Record<string, string>): string[] =>
  Object.entries(metadata).map(([name, value]) => `--metadata ${quote(`${name}=${value}`)}`);

// metadataFlags are the flags that replace all metadata of a record; an empty one removes it.
export const metadataFlags = (metadata: Record<string, string>): string[] => {
  const flags = addFlags(metadata);
  return flags.length === 0 ? ["--metadata ''"] : flags;
};
