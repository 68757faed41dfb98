// A filter that can be typed as "name:value".
export interface Filter {
  name: string; // of the search parameter, and of the API's query parameter
  label: string;
  values?: { value: string; label: string }[]; // all that it can be, with those that other matches; otherwise any text
  other?: RegExp; // further values that may be typed, such as the identifier of a record that is not in values
  shown?: (value: string) => string; // how a chip shows a value
}

// parseFilter reads a filter that was typed in full: owner:acme, or owner:"two words". It takes the name or
// the label of the filter, and the label of a value, such as the name of a gateway. It returns null for any
// other text.
export function parseFilter(filters: Filter[], typed: string): { name: string; value: string } | null {
  const match = /^(\w+):(?:"([^"]*)"|([^\s"]\S*))\s*$/.exec(typed.trim());
  const filter = match && filters.find((f) => f.name === match[1] || f.label.toLowerCase() === match[1]?.toLowerCase());
  const value = match?.[2] ?? match?.[3];
  if (!filter || !value) return null;
  const known = filter.values?.find((v) => v.value === value) ?? filter.values?.find((v) => v.label.toLowerCase() === value.toLowerCase());
  if (filter.values && !known && !filter.other?.test(value)) return null;
  return { name: filter.name, value: known?.value ?? value };
}

// beginsFilter reports whether text begins with the name of a filter, and so is not searched for.
export const beginsFilter = (filters: Filter[], text: string): boolean => filters.some((f) => text.startsWith(`${f.name}:`));

export interface Suggestion {
  text: string; // to type
  label: string;
  done: boolean; // text is a filter in full
}

// suggest returns what text may become: values of the filters that are not set yet, and the names of filters
// that take any text.
export function suggest(filters: Filter[], set: Record<string, string | undefined>, text: string): Suggestion[] {
  const word = text.trim().toLowerCase();
  return filters.flatMap((f): Suggestion[] => {
    if (set[f.name]) return [];
    if (!f.values) {
      const may = f.name.startsWith(word.split(':')[0] ?? '') && !word.includes(':');
      return may ? [{ text: `${f.name}:`, label: f.label, done: false }] : [];
    }
    return f.values
      .filter((v) => [`${f.name}:${v.value}`, `${f.label}:${v.label}`, v.value, v.label].some((t) => t.toLowerCase().startsWith(word)))
      .map((v) => ({ text: `${f.name}:${/\s/.test(v.value) ? `"${v.value}"` : v.value}`, label: `${f.label}: ${v.label}`, done: true }));
  });
}

// whyRefused says what is wrong with what was typed as a filter.
export function whyRefused(filters: Filter[], text: string): string {
  const [name = '', value] = text.trim().split(/:(.*)/s, 2);
  const filter = filters.find((f) => f.name === name || f.label.toLowerCase() === name.toLowerCase());
  if (!filter) return `The filters here are ${filters.map((f) => f.label.toLowerCase()).join(', ')}. Type one as name:value.`;
  return value ? `${filter.label} cannot be “${value}”.` : `Type a value after ${name}:`;
}
