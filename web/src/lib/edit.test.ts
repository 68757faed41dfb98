import { act } from 'react';
import { expect, test, vi } from 'vitest';
import { ApiError } from '../api/client';
import { runHook } from '../test/hook';
import { useEdit } from './edit';

const record = { name: 'orders', owner: '', tags: ['a', 'b'] };
type Record = typeof record;
const conflict = new ApiError(412, 'precondition_failed', 'the record has changed');

function edit() {
  const server = { record, etag: 'v1' };
  const read = vi.fn(() => Promise.resolve({ data: server.record, etag: server.etag }));
  const saved = vi.fn(() => Promise.resolve());
  const sent: { body: Partial<Record>; etag: string | null }[] = [];
  const run = runHook(
    () =>
      useEdit({
        first: { data: record, etag: 'v1' },
        valuesOf: (r) => ({ ...r }),
        labels: { name: 'Name', owner: 'Owner', tags: 'Tags' },
        read,
      }),
    null,
  );
  const save = () => {
    const { changes } = run.now;
    return act(() =>
      run.now.save({
        saved,
        send: (etag) => {
          sent.push({ body: changes, etag });
          return etag === server.etag ? Promise.resolve() : Promise.reject(conflict);
        },
      }),
    );
  };
  // theirs is a change by another session.
  const theirs = (change: Partial<Record>) => {
    server.record = { ...server.record, ...change };
    server.etag = 'v2';
  };
  return { run, read, saved, sent, save, theirs, type: (owner: string) => act(() => run.now.set('owner', owner)) };
}

// Guarantee: a form sends the fields that were touched, with the ETag that it began with; untouched it sends nothing.
test('an edit sends what was touched', async () => {
  const e = edit();
  await e.save();
  expect(e.saved).not.toHaveBeenCalled();
  expect(e.sent).toEqual([]);
  e.type('acme');
  await e.save();
  expect(e.sent).toEqual([{ body: { owner: 'acme' }, etag: 'v1' }]);
  expect(e.saved).toHaveBeenCalledOnce();
});

// Guarantee: after a conflict the form keeps what was typed, says what is different, and sends nothing until the
// user has chosen.
test('a conflict keeps what was typed', async () => {
  const e = edit();
  e.type('acme');
  e.theirs({ name: 'shop', owner: 'initech', tags: [] });
  await e.save();
  expect(e.saved).not.toHaveBeenCalled();
  expect(e.run.now.error).toBeNull();
  expect(e.run.now.values).toEqual({ ...record, owner: 'acme' });
  expect(e.run.now.conflict?.differences).toEqual([
    { name: 'Name', theirs: 'shop', mine: undefined },
    { name: 'Owner', theirs: 'initech', mine: 'acme' },
    { name: 'Tags', theirs: 'empty', mine: undefined },
  ]);
  await e.save();
  expect(e.sent).toHaveLength(1);
});

// Guarantee: "keep" sends again what was touched, with the new ETag, and shows the other fields as they are now.
test('the user keeps the own changes', async () => {
  const e = edit();
  e.type('acme');
  e.theirs({ name: 'shop' });
  await e.save();
  act(() => e.run.now.conflict?.onKeep());
  expect(e.run.now.conflict).toBeNull();
  expect(e.run.now.values).toEqual({ ...record, name: 'shop', owner: 'acme' });
  await e.save();
  expect(e.sent.at(-1)).toEqual({ body: { owner: 'acme' }, etag: 'v2' });
});

// Guarantee: "take" forgets what was typed.
test('the user takes the other changes', async () => {
  const e = edit();
  e.type('acme');
  e.theirs({ name: 'shop' });
  await e.save();
  act(() => e.run.now.conflict?.onTake());
  expect(e.run.now.values).toEqual({ ...record, name: 'shop' });
  expect(e.run.now.dirty).toBe(false);
});

// Guarantee: any other error is shown, also that of reading the record after a conflict.
test('an error of the server is kept', async () => {
  const e = edit();
  e.type('acme');
  e.theirs({});
  e.read.mockRejectedValueOnce(new ApiError(404, 'not_found', 'there is no such record'));
  await e.save();
  expect(e.run.now.error?.message).toBe('there is no such record');
  expect(e.run.now.conflict).toBeNull();
});
