// Search parameters of a page are strings, absent when empty, so that a link shows what it selects.
export type Search<K extends string> = { [P in K]?: string };

// pick returns the validateSearch of a route that knows these parameters.
export function pick<K extends string>(...names: K[]) {
  return (raw: Record<string, unknown>): Search<K> => {
    const found: Search<K> = {};
    for (const n of names) {
      const v = raw[n];
      if (typeof v === 'string' && v !== '') found[n] = v;
    }
    return found;
  };
}

export const parseSearch = (text: string): Record<string, string> => Object.fromEntries(new URLSearchParams(text));

export function stringifySearch(search: Record<string, unknown>): string {
  const out = new URLSearchParams();
  for (const [k, v] of Object.entries(search)) {
    if (typeof v === 'string' && v !== '') out.set(k, v);
  }
  const text = out.toString();
  return text ? `?${text}` : '';
}
