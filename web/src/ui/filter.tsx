import { useCallback, useEffect, useId, useRef, useState } from 'react';
import { beginsFilter, type Filter, parseFilter, suggest, whyRefused } from '../lib/filter';
import { withoutSecret } from '../lib/secret';
import { useUrl } from '../lib/url';
import { Icon } from './icon';

const none: Filter[] = [];

// FilterBar is a search box with typed filters as chips, all kept in the URL. What is typed as
// "owner:acme " becomes a chip; the rest is the text of the search, sent 200 ms after the last
// keystroke. A chip can be clicked to edit it.
export function FilterBar({ filters = none, search = true, placeholder }: { filters?: Filter[]; search?: boolean; placeholder?: string }) {
  const [url, change] = useUrl<string>();
  const [text, setText] = useState(url.q ?? '');
  const [open, setOpen] = useState(false);
  const [refused, setRefused] = useState(false); // Enter was pressed on text that is not a filter
  const note = useId();
  const input = useRef<HTMLInputElement>(null);
  const sent = useRef(url.q ?? '');
  useEffect(() => {
    if ((url.q ?? '') !== sent.current) {
      // the history was used
      sent.current = url.q ?? '';
      setText(sent.current);
    }
  }, [url.q]);
  const accept = useCallback(
    (typed: string): boolean => {
      const filter = parseFilter(filters, typed);
      if (!filter) return false;
      sent.current = ''; // the filter has replaced the text
      change({ [filter.name]: filter.value, q: undefined });
      setText('');
      return true;
    },
    [filters, change],
  );
  useEffect(() => {
    if (text.endsWith(' ') && accept(text)) return; // its values may have come only now
    const rest = text.trim();
    if (!search || rest === sent.current || beginsFilter(filters, rest)) return;
    const timer = setTimeout(() => {
      sent.current = rest;
      change({ q: rest || undefined }, true);
    }, 200);
    return () => clearTimeout(timer);
  }, [text, search, change, filters, accept]);

  const onType = (typed: string) => {
    const v = withoutSecret(typed);
    setText(v);
    setOpen(true);
    setRefused(false);
    if (v.endsWith(' ') && accept(v)) setOpen(false); // what it lies over has changed
  };
  const chips = filters.filter((f) => url[f.name]);
  const suggestions = suggest(filters, url, text);
  return (
    <div
      className="relative flex min-h-8 min-w-48 flex-1 flex-wrap items-center gap-1 rounded-md border border-line-strong bg-surface px-2 focus-within:outline-2 focus-within:outline-accent"
      onBlur={(e) => {
        if (!e.currentTarget.contains(e.relatedTarget)) setOpen(false);
      }}>
      <Icon name={search ? 'search' : 'filter'} className="text-muted" />
      {chips.map((f) => {
        const value = url[f.name] ?? '';
        const shown = f.shown?.(value) ?? f.values?.find((v) => v.value === value)?.label ?? value;
        return (
          <span key={f.name} className="inline-flex h-6 max-w-40 items-center rounded sm:max-w-60 bg-accent-soft text-sm text-accent">
            <button
              type="button"
              className="min-w-0 truncate pl-2"
              title={`Edit ${f.label}: ${shown}`}
              onClick={() => {
                change({ [f.name]: undefined });
                setText(`${f.name}:${value}`);
                input.current?.focus();
              }}>
              {f.label}:{' '}
              <b className="font-semibold">
                <bdi>{shown}</bdi>
              </b>
            </button>
            <button
              type="button"
              aria-label={`Remove the filter ${f.label}`}
              className="px-1.5 py-1"
              onClick={() => change({ [f.name]: undefined })}>
              <Icon name="cross" className="size-3" />
            </button>
          </span>
        );
      })}
      <input
        ref={input}
        data-search
        aria-label={placeholder ?? 'Search and filter'}
        placeholder={chips.length ? '' : (placeholder ?? 'Search and filter')}
        aria-invalid={refused || undefined}
        aria-describedby={refused ? note : undefined}
        value={text}
        autoComplete="off"
        spellCheck={false}
        onChange={(e) => onType(e.target.value)}
        onFocus={() => setOpen(true)}
        className="h-7 min-w-12 flex-1 sm:min-w-24 bg-transparent px-1 outline-none"
        onKeyDown={(e) => {
          if (e.key === 'Enter') {
            const [only] = suggestions;
            const taken =
              accept(text) || (!search && text.trim() !== '' && suggestions.length === 1 && only?.done === true && accept(only.text));
            setOpen(false);
            setRefused(!taken && text.trim() !== '' && (!search || text.includes(':')));
          } else if (e.key === 'Escape') {
            if (open) {
              e.stopPropagation();
              setOpen(false);
            } else setText('');
          } else if (e.key === 'Backspace' && text === '' && chips.length) change({ [chips[chips.length - 1]!.name]: undefined });
          else if (e.key === 'ArrowDown') {
            e.preventDefault();
            setOpen(true);
            e.currentTarget.parentElement?.querySelector<HTMLElement>('[data-suggestion]')?.focus();
          }
        }}
      />
      {refused && (
        <p id={note} role="alert" className="w-full pb-1 text-sm text-bad">
          {whyRefused(filters, text)}
        </p>
      )}
      {open && suggestions.length > 0 && (
        <ul
          aria-label="Filters"
          className="absolute top-full left-0 z-30 mt-1 max-h-72 w-72 max-w-full overflow-auto rounded-md border border-line bg-raised py-1 shadow-lg">
          {suggestions.slice(0, 20).map((s) => (
            <li key={s.text}>
              <button
                type="button"
                data-suggestion
                className="flex h-7 w-full items-center justify-between gap-3 px-3 text-left hover:bg-hover focus:bg-hover"
                onKeyDown={(e) => {
                  const to =
                    e.key === 'ArrowDown'
                      ? e.currentTarget.parentElement?.nextElementSibling
                      : e.key === 'ArrowUp'
                        ? e.currentTarget.parentElement?.previousElementSibling
                        : undefined;
                  if (e.key === 'Escape') {
                    e.stopPropagation();
                    setOpen(false);
                    input.current?.focus();
                  }
                  if (to === undefined) return;
                  e.preventDefault();
                  (to?.querySelector<HTMLElement>('button') ?? input.current)?.focus();
                }}
                onClick={() => {
                  if (s.done) accept(s.text);
                  else setText(s.text);
                  if (s.done) setOpen(false);
                  input.current?.focus();
                }}>
                <span className="min-w-0 truncate" title={s.label}>
                  {s.label}
                </span>
                {s.text.length <= 30 && <code className="shrink-0 font-mono text-sm text-muted">{s.text}</code>}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
