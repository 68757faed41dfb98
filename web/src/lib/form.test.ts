import { act } from 'react';
import { expect, test } from 'vitest';
import { ApiError } from '../api/client';
import { runHook } from '../test/hook';
import { useForm } from './form';

// Guarantee: what the server says about a field is shown at that field and nowhere else; what no field shows is the rest.
test('each problem is shown once', async () => {
  const run = runHook(() => useForm({ name: '' }), null);
  const fields = [
    { field: 'name', message: 'must not be empty' },
    { field: 'rate_limit.burst', message: 'is too much' },
    { field: 'rate_limit', message: 'is not a limit' },
    { field: 'other', message: 'is unknown' },
  ];
  await act(() => run.now.submit(() => Promise.reject(new ApiError(422, 'validation_failed', 'must not be empty', undefined, fields))));
  expect(run.now.rest()?.fields).toEqual(fields); // no field has shown anything yet
  expect(run.now.fieldError('name')).toBe('must not be empty');
  const limit = run.now.limitError('rate_limit');
  expect([limit('sustained'), limit('burst'), limit('daily')]).toEqual(['is not a limit', 'is too much', undefined]);
  expect(run.now.rest()).toMatchObject({ message: 'is unknown', fields: [fields[3]] });
  run.now.fieldError('other');
  expect(run.now.rest()).toBeNull();
});
