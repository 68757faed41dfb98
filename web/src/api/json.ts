// parse is JSON.parse that keeps integers beyond 2^53 exact: they become a bigint.
export function parse(text: string): unknown {
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

function exact(_key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
  const source = context?.source;
  return source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

// stringify is JSON.stringify for values that parse returned.
export function stringify(value: unknown, indent?: number): string {
  const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;
  return JSON.stringify(
    value,
    (_key, v: unknown) => (typeof v === 'bigint' ? (raw ? raw(v.toString()) : v.toString()) : v),
    indent,
  );
}
