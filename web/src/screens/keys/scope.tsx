import { refusal, useAccount, type Word } from '../../api/session';
import { Button, IconButton } from '../../ui/basic';
import { Field, inputClass } from '../../ui/form';

const words: { value: Word; label: string }[] = [
  { value: 'read', label: 'read: GET, HEAD, OPTIONS' },
  { value: 'write', label: 'write: also POST, PUT, PATCH' },
  { value: 'admin', label: 'admin: also DELETE' },
];

// ScopeField edits a scope, one part in a line: what it allows, and below which path. Words above those of the
// caller cannot be chosen.
export function ScopeField({
  value,
  onChange,
  error,
  account,
}: {
  value: string;
  onChange: (scope: string) => void;
  error?: string;
  account?: boolean;
}) {
  const parts = value === '' ? [''] : value.split(' ');
  const own = useAccount()?.key.scope;
  const split = (part: string) => {
    const i = part.indexOf(':');
    return i < 0 ? { word: part, resource: '' } : { word: part.slice(0, i), resource: part.slice(i + 1) };
  };
  const set = (n: number, next: { word: string; resource: string }) =>
    onChange(
      parts.map((p, i) => (i === n ? `${next.word}${next.resource ? `:${next.resource.replaceAll(/\s/g, '')}` : ''}` : p)).join(' '),
    );
  return (
    <Field
      label="Scope"
      error={error}
      hint={
        account
          ? 'What the key may do with this management API. A resource is a part of it, such as keys.'
          : 'What the key allows. A resource, such as orders, covers /orders and every path below it; empty covers all paths.'
      }>
      {(p) => (
        <div role="group" aria-label="Scope" className="flex flex-col gap-2">
          {parts.map((part, n) => {
            const { word, resource } = split(part);
            return (
              <div key={n} className="flex flex-wrap gap-2 sm:flex-nowrap">
                <select
                  {...(n === 0 ? p : {})}
                  aria-label={`Scope ${n + 1}: what it allows`}
                  value={word}
                  className={`${inputClass} sm:max-w-60`}
                  onChange={(e) => set(n, { word: e.target.value, resource })}>
                  {words.map((w) => (
                    <option key={w.value} value={w.value} disabled={own !== undefined && refusal(own, w.value, 'keys') !== null}>
                      {w.label}
                    </option>
                  ))}
                </select>
                <input
                  aria-label={`Scope ${n + 1}: resource`}
                  placeholder={account ? 'all, or keys' : 'all paths, or orders'}
                  value={resource}
                  autoComplete="off"
                  spellCheck={false}
                  className={`${inputClass} flex-1 font-mono`}
                  onChange={(e) => set(n, { word, resource: e.target.value })}
                />
                {parts.length > 1 && (
                  <IconButton
                    icon="cross"
                    label={`Remove scope ${n + 1}`}
                    onClick={() => onChange(parts.filter((_, i) => i !== n).join(' '))}
                  />
                )}
              </div>
            );
          })}
          {parts.length < 16 && (
            <div>
              <Button size="sm" icon="plus" onClick={() => onChange([...parts, 'read'].join(' '))}>
                Add a scope
              </Button>
            </div>
          )}
        </div>
      )}
    </Field>
  );
}
