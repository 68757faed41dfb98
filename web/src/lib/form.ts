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
  // The problems that this rendering shows at their fields.
  const shown = new Set<ApiError['fields'][number]>();
  const errorsAt = (matches: (field: string) => boolean) => {
    const found = error?.fields.filter((f) => matches(f.field)) ?? [];
    for (const f of found) shown.add(f);
    return found;
  };
  const errorAt = (matches: (field: string) => boolean): string | undefined => {
    const found = errorsAt(matches);
    return [...new Set(found.map((f) => f.message))].join('\n') || undefined;
  };
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
    // errorAt returns what the server said about the fields that match, a line each, which is shown there.
    errorAt,
    // errorsAt returns them with their fields.
    errorsAt,
    // fieldError is errorAt of a field and of those below it.
    fieldError: (name: string) => errorAt((f) => f === name || f.startsWith(`${name}.`)),
    // limitError is errorAt of a part of a limit. What is said of a limit as a whole is shown at its first part.
    limitError: (name: string) => (part: string) => errorAt((f) => f === `${name}.${part}` || (part === 'sustained' && f === name)),
    // rest returns what is wrong and shown at no field, or null. Call it after the fields are rendered.
    rest: (): ApiError | null => {
      const left = error?.fields.filter((f) => !shown.has(f)) ?? [];
      if (!error || (error.fields.length > 0 && left.length === 0)) return null;
      if (left.length === error.fields.length) return error;
      const message = left[0]?.message ?? error.message;
      return new ApiError(error.status, error.kind, message, error.code, left, error.requestId, error.retryAfter);
    },
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
