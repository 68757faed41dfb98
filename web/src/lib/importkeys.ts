import { ApiError, type Schemas } from '../api/client';

type Request = Schemas['ImportKeyRequest'];
type Problem = ApiError['fields'][number];

// most is how many keys one call imports.
export const most = 1000;

// readKeys reads the JSON of an import. It throws an Error that says what is wrong with it.
export function readKeys(text: string): Request[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (e) {
    const line = /\bline \d+/.exec((e as Error).message)?.[0];
    throw new Error(line ? `This is not JSON: see ${line}.` : 'This is not JSON.', { cause: e });
  }
  const keys = (parsed as { keys?: unknown } | null)?.keys;
  if (!Array.isArray(keys) || keys.length === 0)
    throw new Error('It must have the form {"keys": [{"key": "…", "name": "…", "scope": "read"}]}.');
  if (keys.length > most) throw new Error(`It has ${keys.length} keys, and one import takes ${most}. The command line imports more.`);
  return keys as Request[];
}

// fields are those of a key. The string of a key may stand in none but key.
const fields: Record<keyof Request, true> = {
  key: true,
  sha256: true,
  key_prefix: true,
  name: true,
  scope: true,
  owner: true,
  plan: true,
  plan_id: true,
  level: true,
  gateway_id: true,
  expires_at: true,
  last_used_at: true,
  rate_limit: true,
  concurrency: true,
  metadata: true,
  allow_ips: true,
  deny_ips: true,
};

const sha256 = /^([0-9a-f]{64}|[\w+/-]{43}=?)$/i;

// problemOf returns what is wrong with a key so that it may not leave the browser, as [field, message]: what the server would say of
// a string in clear, and what may be one where none belongs.
function problemOf(request: Request): [string, string] | undefined {
  if (typeof request !== 'object' || request === null || Array.isArray(request)) return ['', 'must be an object'];
  const unknown = Object.keys(request).find((name) => !Object.hasOwn(fields, name));
  if (unknown !== undefined) return [unknown, 'is not a field of a key: leave it out'];
  const { key, sha256: hash, key_prefix: prefix } = request as Record<string, unknown>;
  if (hash != null && (typeof hash !== 'string' || !sha256.test(hash)))
    return ['sha256', 'must be the SHA-256 of the key: 64 hexadecimal digits, or base64 of 32 bytes'];
  if (prefix != null && (typeof prefix !== 'string' || !/^[!-~]{0,16}$/.test(prefix)))
    return ['key_prefix', 'must have at most 16 printable ASCII characters and no spaces'];
  if (key == null) return undefined;
  if (typeof key !== 'string') return ['key', 'must be a string'];
  if (hash != null) return ['key', 'must not be given together with sha256: give one of them'];
  if (key.length < 16 || key.length > 512) return ['key', 'must have 16 to 512 characters: create a new key in place of this one'];
  if (!/^[!-~]+$/.test(key))
    return ['key', 'must consist of printable ASCII characters without spaces: create a new key in place of this one'];
  if (/^(kg_|kga_|kgs_).{36}$/.test(key)) return ['key', 'has the form of Keygate’s own keys, which cannot be imported: create a key'];
  if (key.length < 22)
    return [
      'key',
      'must have at least 22 characters, since a shorter key may be guessed: give its sha256 if it must be accepted nevertheless, or create a new key',
    ];
  if (!prefix) return undefined;
  if (!key.startsWith(prefix)) return ['key_prefix', 'must be the beginning of the key'];
  return key.length - prefix.length < 16
    ? ['key_prefix', 'must leave at least 16 characters of the key out, since everyone who may read keys sees it']
    : undefined;
}

// hashedKeys returns the keys with the SHA-256 in place of the string of each, as the command line sends them, so that no string leaves
// the browser. It throws an ApiError with what is wrong with the strings; what is wrong with other fields, the server says.
export async function hashedKeys(requests: Request[]): Promise<Request[]> {
  const problems = requests.flatMap((r, i): Problem[] => {
    const [field, message] = problemOf(r) ?? [];
    return message === undefined ? [] : [{ field: `keys[${i}]${field && `.${field}`}`, message }];
  });
  if (problems.length > 0) throw new ApiError(0, 'invalid', problems[0]!.message, undefined, problems);
  return await Promise.all(requests.map(hashed));
}

async function hashed({ key, ...rest }: Request): Promise<Request> {
  if (key == null) return rest;
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(key));
  const hex = Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, '0')).join('');
  return { ...rest, sha256: hex, key_prefix: rest.key_prefix || key.slice(0, 6) };
}

// linesOf returns the line of JSON in which each key of an import begins, from 1.
export function linesOf(text: string): number[] {
  const lines: number[] = [];
  let [line, depth, inList, named] = [1, 0, false, ''];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}\n]|[^\s"[\]{},:]+/g)) {
    if (token === '\n') {
      line++;
      continue;
    }
    const opens = token === '{' || token === '[';
    const closes = token === '}' || token === ']';
    if (opens && depth === 1) inList = named === '"keys"';
    if (!closes && depth === 2 && inList) lines.push(line);
    if (opens) depth++;
    else if (closes) depth--;
    else if (depth === 1) named = token;
  }
  return lines;
}

const shown = 20; // problems of an import

// problemLines says the problems of an import, each with the line of its key: "Line 3, scope: must not be empty".
export function problemLines(problems: Problem[], text: string): string {
  const lines = linesOf(text);
  const said = problems.slice(0, shown).map(({ field, message }) => {
    const [, n, , part = ''] = /^keys\[(\d+)\](\.(.*))?$/.exec(field) ?? [];
    const line = n === undefined ? undefined : lines[Number(n)];
    return `${line === undefined ? field : `Line ${line}${part && `, ${part}`}`}: ${message}`;
  });
  if (problems.length > shown) said.push(`and ${problems.length - shown} more`);
  return said.join('\n');
}
