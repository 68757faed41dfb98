// relative says how far a time is from now, both in milliseconds: "3 min ago", "in 2 days".
export function relative(time: number, now: number): string {
  const seconds = Math.round((time - now) / 1000);
  const size = Math.abs(seconds);
  if (size < 5) return 'now';
  const [value, unit] =
    size < 60
      ? [size, 's']
      : size < 3600
        ? [Math.floor(size / 60), 'min']
        : size < 86_400
          ? [Math.floor(size / 3600), 'h']
          : size < 86_400 * 60
            ? [Math.floor(size / 86_400), 'd']
            : size < 86_400 * 730
              ? [Math.floor(size / (86_400 * 30)), 'months']
              : [Math.floor(size / (86_400 * 365)), 'years'];
  const text = `${value} ${unit}`;
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}

const local = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

// exact shows a time in the browser's zone and in UTC.
export function exact(iso: string): string {
  const date = new Date(iso);
  return `${local.format(date)} (${date
    .toISOString()
    .replace('T', ' ')
    .replace(/\.000Z$|Z$/, ' UTC')})`;
}

const point = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

// minuteOf shows a Unix time in seconds to the minute, in the browser's zone, as all of a chart does.
export const minuteOf = (seconds: number): string => point.format(new Date(seconds * 1000));

const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const minute = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

// tick shows a time of the x axis of a chart, a Unix time in seconds; step is the distance to the next one in seconds.
export function tick(time: number, step: number): string {
  const date = new Date(time * 1000);
  if (step >= 86_400 || (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0)) return day.format(date);
  return (step < 60 ? clock : minute).format(date);
}

// zone names the browser's zone at a Unix time in seconds: "UTC", "GMT+2".
export const zone = (seconds: number): string =>
  new Intl.DateTimeFormat('en-GB', { timeZoneName: 'short' }).formatToParts(new Date(seconds * 1000)).find((p) => p.type === 'timeZoneName')
    ?.value ?? '';

// momentOf shows a time in the browser's zone as briefly as it can be said at now, in milliseconds: 14:03:20, or 29 Nov, 14:03 of
// another day.
export const momentOf = (iso: string, now: number): string =>
  new Date(now).toDateString() === new Date(iso).toDateString() ? timeOfDay(iso) : minuteOf(Date.parse(iso) / 1000);

// timeOfDay shows a time of today, such as 14:03:20, in the browser's zone.
export const timeOfDay = (iso: string): string => clock.format(new Date(iso));

export const ranges = { '15m': 15 * 60, '1h': 3600, '24h': 86_400, '7d': 7 * 86_400 } as const;
export type Range = keyof typeof ranges;
