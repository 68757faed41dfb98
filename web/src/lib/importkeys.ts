import type { Schemas } from '../api/client';

type Request = Schemas['ImportKeyRequest'];

// most is how many keys one call imports.
export const most = 1000;

// readKeys reads the JSON of an import. It throws an Error that says what is wrong with it.
export function readKeys(text: string): Request[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error('This is not JSON.');
  }
  const keys = (parsed as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys) || keys.length === 0)
    throw new Error('It must have the form {"keys": [{"key": "…", "name": "…", "scope": "read"}]}.');
  if (keys.length > most) throw new Error(`It has ${keys.length} keys, and one import takes ${most}. The command line imports more.`);
  return keys as Request[];
}

// accepted reports whether the server takes a key in clear, with this prefix.
const accepted = (key: string, prefix: string) =>
  /^[!-~]{22,512}$/.test(key) && !/^(kg_|kga_).{36}$/.test(key) && key.startsWith(prefix) && key.length - prefix.length >= 16;

// hashed replaces the string of a key by its SHA-256, as the command line does, so that it does not leave the browser. A key that
// the server refuses stays as it is: of a hash, the server could not say what is wrong.
export async function hashed(request: Request): Promise<Request> {
  const { key, ...rest } = request ?? {};
  const prefix = rest.key_prefix || String(key).slice(0, 6);
  if (typeof key !== 'string' || rest.sha256 || !accepted(key, prefix)) return request;
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(key));
  return { ...rest, sha256: Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, '0')).join(''), key_prefix: prefix };
}
