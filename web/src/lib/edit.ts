import { useState } from 'react';
import { type Answer, ApiError } from '../api/client';
import { useForm } from './form';

// A Difference is a field that another session has changed, as the form shows it.
export interface Difference {
  name: string;
  theirs: string;
  mine?: string; // absent if the field was not touched here
}

interface Editing<R, V> {
  first: Answer<R>; // the record to edit
  valuesOf: (record: R) => V;
  labels: { [K in keyof V]?: string }; // of the fields to compare after a conflict
  show?: (value: V[keyof V]) => string;
  read: () => Promise<Answer<R>>; // reads the record that another session has changed
  othersKept?: boolean; // what is sent changes nothing that valuesOf does not return
}

interface Saving<A> {
  send: (etag: string | null) => Promise<A>;
  saved: (answer: A) => Promise<void>;
}

const text = (value: unknown): string => (Array.isArray(value) ? value.join(', ') : String(value)) || 'empty';

// differences returns the fields of labels that differ between before and theirs.
export function differences<V extends Record<string, unknown>>(
  labels: { [K in keyof V]?: string },
  { before, theirs, changes }: { before: V; theirs: V; changes: Partial<V> },
  show: (value: V[keyof V]) => string = text,
): Difference[] {
  return (Object.entries(labels) as [string, string][])
    .filter(([n]) => JSON.stringify(theirs[n]) !== JSON.stringify(before[n]))
    .map(([n, name]) => ({ name, theirs: show(theirs[n] as V[keyof V]), mine: n in changes ? show(changes[n] as V[keyof V]) : undefined }));
}

// useEdit is a form for a record. It is saved with the ETag of the record that it began with. If another
// session has changed the record since (412), the form keeps what was typed, and conflict has the
// properties of a Conflict, until the user has chosen. With othersKept, a change of other fields is no conflict.
export function useEdit<R, V extends Record<string, unknown>>({ first, valuesOf, labels, show, read, othersKept = false }: Editing<R, V>) {
  const [base, setBase] = useState(first); // the page may read the record again while the form is open
  const [newer, setNewer] = useState<Answer<R> | null>(null);
  const form = useForm(valuesOf(first.data));
  const { changes } = form;
  // begin begins anew with a record, and forgets what was typed.
  const begin = (answer: Answer<R>) => {
    setBase(answer);
    setNewer(null);
    form.reset(valuesOf(answer.data));
  };
  const save = async <A>({ send, saved }: Saving<A>) => {
    if (newer || !form.dirty) return;
    // sendWith returns what was answered; undefined if there is a conflict, which is shown then.
    const sendWith = async (etag: typeof base.etag, again: boolean): Promise<{ answer: A } | undefined> => {
      try {
        return { answer: await send(etag) };
      } catch (e) {
        if (!(e instanceof ApiError) || e.status !== 412) throw e;
        const now = await read();
        if (again && JSON.stringify(valuesOf(now.data)) === JSON.stringify(valuesOf(base.data))) return await sendWith(now.etag, false);
        setNewer(now);
        return undefined;
      }
    };
    await form.submit(async () => {
      const sent = await sendWith(base.etag, othersKept);
      if (sent) await saved(sent.answer);
    });
  };
  const conflict = newer && {
    differences: differences(labels, { before: valuesOf(base.data), theirs: valuesOf(newer.data), changes }, show),
    onKeep: () => {
      begin(newer);
      for (const n of Object.keys(changes) as (keyof V)[]) form.set(n, changes[n] as V[keyof V]);
    },
    onTake: () => begin(newer),
  };
  return { ...form, base: base.data, begin, discard: () => form.reset(valuesOf(base.data)), save, conflict };
}
