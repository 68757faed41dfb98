import { useMemo, useState } from 'react';
import { ApiError } from '../api/client';

// useForm keeps the values of a form beside those that it began with. changes has the fields that were
// touched and differ, so a form saved unchanged sends nothing.
export function useForm<T extends Record<string, unknown>>(initial: T) {
  const [start, setStart] = useState(initial);
  const [values, setValues] = useState(initial);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const changes = useMemo(() => {
    const out: Partial<T> = {};
    for (const k of Object.keys(values) as (keyof T)[]) {
      if (JSON.stringify(values[k]) !== JSON.stringify(start[k])) out[k] = values[k];
    }
    return out;
  }, [values, start]);
  return {
    values,
    changes,
    dirty: Object.keys(changes).length > 0,
    error,
    busy,
    set: <K extends keyof T>(name: K, value: T[K]) => setValues((v) => ({ ...v, [name]: value })),
    // reset begins anew, from what the server has now.
    reset: (next: T) => {
      setStart(next);
      setValues(next);
      setError(null);
    },
    // fieldError is the server's word on a field, or on a field below it.
    fieldError: (name: string) => error?.fields.find((f) => f.field === name || f.field.startsWith(`${name}.`))?.message,
    // submit runs f and keeps its error. It reports whether f succeeded.
    submit: async (f: () => Promise<void>): Promise<boolean> => {
      setBusy(true);
      setError(null);
      try {
        await f();
        return true;
      } catch (e) {
        setError(e instanceof ApiError ? e : new ApiError(0, 'unexpected', String(e)));
        return false;
      } finally {
        setBusy(false);
      }
    },
  };
}
