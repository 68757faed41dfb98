import { wholeNumber } from './format';
import { quote } from './shell';

// The Calendar of a plan or an owner as a form has it; "" means that it is not set.
export interface Calendar {
  time_zone: string;
  anchor_day: string;
}

export const noCalendar: Calendar = { time_zone: '', anchor_day: '' };

// calendarText returns the calendar of a record as a form has it.
export const calendarText = (r: { time_zone: string | null; anchor_day: number | null }): Calendar => ({
  time_zone: r.time_zone ?? '',
  anchor_day: r.anchor_day === null ? '' : String(r.anchor_day),
});

// calendarBody returns what a call takes for what is set.
export const calendarBody = ({ time_zone, anchor_day }: Calendar) => ({
  ...(time_zone.trim() ? { time_zone: time_zone.trim() } : {}),
  ...(anchor_day.trim() ? { anchor_day: wholeNumber(anchor_day) } : {}),
});

// calendarChanges returns what a call takes for what was changed: null for what is no longer set.
export const calendarChanges = (changes: Partial<Calendar>) => ({
  ...(changes.time_zone !== undefined && { time_zone: changes.time_zone.trim() || null }),
  ...(changes.anchor_day !== undefined && { anchor_day: changes.anchor_day.trim() ? wholeNumber(changes.anchor_day) : null }),
});

// calendarFlags are the flags of what calendarBody and calendarChanges return.
export const calendarFlags = (of: ReturnType<typeof calendarChanges>): string[] => [
  ...(of.time_zone === undefined ? [] : [`--time-zone ${quote(of.time_zone ?? '')}`]),
  ...(of.anchor_day === undefined ? [] : [`--anchor-day ${quote(String(of.anchor_day ?? 0))}`]),
];

const ordinal = new Intl.PluralRules('en', { type: 'ordinal' });
const endings: Record<string, string> = { one: 'st', two: 'nd', few: 'rd' };

// calendarWords says how a calendar divides time: "Europe/Berlin, months from the 15th".
export function calendarWords({ time_zone, anchor_day }: Calendar): string {
  const n = Number(anchor_day);
  return [time_zone, anchor_day && `months from the ${n}${endings[ordinal.select(n)] ?? 'th'}`].filter(Boolean).join(', ');
}
