import { type ComponentProps, type ReactNode, useEffect, useId, useRef } from 'react';
import type { ApiError } from '../api/client';
import { Button, Failure } from './basic';

export const inputClass =
  'h-8 w-full min-w-0 rounded-md border border-line-strong bg-surface px-2.5 text-base placeholder:text-muted disabled:opacity-55 aria-[invalid=true]:border-bad';

// Form is a form that a function submits.
export const Form = ({
  onSubmit,
  className = 'flex flex-col gap-4',
  ...rest
}: Omit<ComponentProps<'form'>, 'onSubmit'> & { onSubmit: () => unknown }) => (
  <form
    {...rest}
    className={className}
    onSubmit={(e) => {
      e.preventDefault();
      void onSubmit();
    }}
  />
);

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null;
  optional?: boolean;
  children: (props: { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }) => ReactNode;
}

// sentence says an error of the server, which leaves its subject out: "must not be empty" is said of the label.
const sentence = (label: ReactNode, error: string): string =>
  typeof label === 'string' && /^\p{Ll}/u.test(error) ? `${label} ${error}` : error;

// Field is a labelled input with a hint and an error. The error stands below it.
export function Field({ label, hint, error, optional, children }: FieldProps) {
  const id = useId();
  const described = [hint ? `${id}h` : '', error ? `${id}e` : ''].filter(Boolean).join(' ') || undefined;
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="font-medium">
        {label} {optional && <span className="font-normal text-muted">optional</span>}
      </label>
      {children({ id, 'aria-describedby': described, ...(error ? { 'aria-invalid': true } : {}) })}
      {hint && (
        <p id={`${id}h`} className="text-sm text-muted">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}e`} role="alert" className="text-sm break-words whitespace-pre-line text-bad">
          {sentence(label, error)}
        </p>
      )}
    </div>
  );
}

type TextProps = Omit<FieldProps, 'children'> &
  Omit<ComponentProps<'input'>, 'onChange' | 'value'> & { value: string; onChange: (value: string) => void; mono?: boolean };

export function TextField({ label, hint, error, optional, onChange, mono, className = '', ...rest }: TextProps) {
  return (
    <Field label={label} hint={hint} error={error} optional={optional}>
      {(p) => (
        <input
          {...p}
          {...rest}
          autoComplete="off"
          spellCheck={false}
          onChange={(e) => onChange(e.target.value)}
          className={`${inputClass} ${mono ? 'font-mono' : ''} ${className}`}
        />
      )}
    </Field>
  );
}

type AreaProps = Omit<FieldProps, 'children'> &
  Omit<ComponentProps<'textarea'>, 'onChange' | 'value'> & { value: string; onChange: (value: string) => void };

export function AreaField({ label, hint, error, optional, onChange, rows = 6, ...rest }: AreaProps) {
  return (
    <Field label={label} hint={hint} error={error} optional={optional}>
      {(p) => (
        <textarea
          {...p}
          {...rest}
          rows={rows}
          spellCheck={false}
          onChange={(e) => onChange(e.target.value)}
          className={`${inputClass} h-auto resize-y py-2 font-mono text-sm`}
        />
      )}
    </Field>
  );
}

type SelectProps = Omit<FieldProps, 'children'> &
  Omit<ComponentProps<'select'>, 'onChange' | 'value'> & {
    value: string;
    onChange: (value: string) => void;
    options: { value: string; label: string }[];
  };

export function SelectField({ label, hint, error, optional, onChange, options, ...rest }: SelectProps) {
  return (
    <Field label={label} hint={hint} error={error} optional={optional}>
      {(p) => (
        <select {...p} {...rest} onChange={(e) => onChange(e.target.value)} className={inputClass}>
          {options.map((o) => (
            <option key={o.value} value={o.value}>
              {o.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField({
  label,
  hint,
  error,
  checked,
  onChange,
  disabled,
}: {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null;
  checked: boolean;
  onChange: (on: boolean) => void;
  disabled?: boolean;
}) {
  const id = useId();
  const described = [hint ? `${id}h` : '', error ? `${id}e` : ''].filter(Boolean).join(' ') || undefined;
  return (
    <div className="flex gap-2">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(e) => onChange(e.target.checked)}
        aria-describedby={described}
        aria-invalid={error ? true : undefined}
        className="mt-0.5 size-4 accent-(--accent)"
      />
      <div>
        <label htmlFor={id} className="font-medium">
          {label}
        </label>
        {hint && (
          <p id={`${id}h`} className="text-sm text-muted">
            {hint}
          </p>
        )}
        {error && (
          <p id={`${id}e`} role="alert" className="text-sm break-words whitespace-pre-line text-bad">
            {sentence(label, error)}
          </p>
        )}
      </div>
    </div>
  );
}

// ChoicesField checks some of a few choices, which keep their order.
export function ChoicesField({
  label,
  hint,
  error,
  choices,
  value,
  onChange,
}: {
  label: string;
  hint?: ReactNode;
  error?: string | null;
  choices: string[];
  value: string[];
  onChange: (value: string[]) => void;
}) {
  const id = useId();
  return (
    <fieldset className="flex flex-wrap gap-x-4 gap-y-2" aria-describedby={hint ? `${id}h` : undefined}>
      <legend className="mb-1 font-medium">{label}</legend>
      {choices.map((c) => (
        <CheckField
          key={c}
          label={c}
          checked={value.includes(c)}
          onChange={(on) => onChange(choices.filter((x) => (x === c ? on : value.includes(x))))}
        />
      ))}
      {hint && (
        <p id={`${id}h`} className="w-full text-sm text-muted">
          {hint}
        </p>
      )}
      {error && (
        <p role="alert" className="w-full text-sm text-bad">
          {sentence(label, error)}
        </p>
      )}
    </fieldset>
  );
}

// SubmitBar is the end of a form that is longer than the window: it stays in sight.
export const SubmitBar = ({ children }: { children: ReactNode }) => (
  <div className="sticky bottom-0 z-10 flex flex-col gap-2 rounded-lg border border-line bg-raised px-4 py-2 shadow-lg">{children}</div>
);

// Submit is the end of a form: what is wrong and shown at none of its fields, and its buttons. After an error of a
// field that field has the focus. unchanged says that there is nothing to save. In a dialog it stays in sight.
export function Submit({
  label,
  busy,
  error,
  unchanged,
  disabled,
  why,
  beside,
  onCancel,
  danger,
}: {
  label: string;
  busy: boolean;
  error?: () => ApiError | null;
  unchanged?: boolean;
  disabled?: boolean;
  why?: string | null;
  beside?: ReactNode; // in the line of the buttons, at its begin
  onCancel?: () => void;
  danger?: boolean;
}) {
  const line = useRef<HTMLDivElement>(null);
  const began = useRef(false);
  useEffect(() => {
    if (began.current && !busy) line.current?.closest('form')?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus();
    began.current = busy;
  }, [busy]);
  const rest = error?.();
  return (
    <div
      ref={line}
      className="flex flex-col gap-3 in-[dialog]:sticky in-[dialog]:-bottom-4 in-[dialog]:z-10 in-[dialog]:-mx-4 in-[dialog]:-mb-4 in-[dialog]:border-t in-[dialog]:border-line in-[dialog]:bg-raised in-[dialog]:px-4 in-[dialog]:py-3">
      {rest && <Failure error={rest} />}
      <div className="flex flex-wrap items-center gap-2">
        {beside}
        <span className="ml-auto flex gap-2">
          {onCancel && <Button onClick={onCancel}>Cancel</Button>}
          <Button
            type="submit"
            kind={danger ? 'danger' : 'primary'}
            busy={busy}
            disabled={disabled}
            why={why ?? (unchanged ? 'Nothing has been changed yet.' : null)}>
            {label}
          </Button>
        </span>
      </div>
    </div>
  );
}
