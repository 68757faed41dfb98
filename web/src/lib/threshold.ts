import type { Schemas } from '../api/client';

export type Threshold = Schemas['QuotaThresholdEvent'];

// A Passed is a threshold with the time at which it was passed.
export type Passed = Threshold & { at: string };

// passedLast returns, of the thresholds that quotas passed, the highest of each window that has not ended: the newest first, as
// events are listed. An event whose data has another form is left out.
export function passedLast(events: Pick<Schemas['Event'], 'data' | 'created_at'>[], now: number): Passed[] {
  const highest = new Map<string, Passed>();
  for (const { data, created_at: at } of events) {
    if (!isThreshold(data) || (data.window_end && Date.parse(data.window_end) <= now)) continue;
    const window = windowKey(data);
    const known = highest.get(window);
    if (!known) highest.set(window, { ...data, at });
    else if (Number(data.percent) > Number(known.percent)) highest.set(window, { ...data, at }); // keeps its position
  }
  return [...highest.values()];
}

// windowKey names the window of the quota that passed a threshold, and whom it counts.
export const windowKey = (t: Threshold): string => JSON.stringify([t.owner_id, t.key_id, t.limit, t.meter, t.window_start]);

const isThreshold = (data: unknown): data is Threshold =>
  typeof data === 'object' && data !== null && 'limit' in data && 'percent' in data && 'window_start' in data;
