import { ApiError } from './client';

// dryRun makes a call as a dry run, with its effect on traffic if the key may see traffic: one that may push
// or roll back need not be.
export async function dryRun<T>(call: (query: { dry_run: true; effect?: true }) => Promise<T>): Promise<T> {
  try {
    return await call({ dry_run: true, effect: true });
  } catch (e) {
    if (!(e instanceof ApiError) || e.status !== 403) throw e;
    return call({ dry_run: true });
  }
}
