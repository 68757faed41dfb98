import { SignatureError } from './errors.js';

/** An event of a delivery (contract, section 6). */
export interface WebhookEvent {
  /** The same in each attempt: use it to ignore duplicates. */
  id: string;
  type: string;
  created_at: string;
  data: Record<string, any>;
}

type Headers_ = Headers | Record<string, string | string[] | undefined>;

/**
 * Verifies that a delivery was signed with secret, the signing_secret of its endpoint, and returns its event. body is the body of the
 * request, byte for byte: not what was parsed of it. tolerance is how many seconds webhook-timestamp may differ from now, against
 * replays. Each signature that the delivery has must be valid. Throws a SignatureError.
 */
export async function verifyWebhook(
  body: string | Uint8Array,
  headers: Headers_,
  secret: string,
  { tolerance = 300, now = new Date() }: { tolerance?: number; now?: Date } = {},
): Promise<WebhookEvent> {
  if (!secret) throw new TypeError('secret is empty: it is the signing_secret of the webhook endpoint');
  const payload = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const get = getter(headers);
  const plain = get('x-service-signature');
  const standard = get('webhook-signature');
  if (!plain && !standard) throw new SignatureError('the request has neither x-service-signature nor webhook-signature');
  if (plain) {
    // A receiver with the old secret finds its signature in the second header during a rotation.
    const given = [plain, get('x-service-signature-previous')].map((s) => (s.startsWith('sha256=') ? fromHex(s.slice(7)) : undefined));
    if (!(await matches(new TextEncoder().encode(secret), payload, given))) throw new SignatureError('x-service-signature does not match');
  }
  if (standard) {
    const id = get('webhook-id');
    const timestamp = get('webhook-timestamp');
    if (!id || !/^\d{1,12}$/.test(timestamp)) throw new SignatureError('webhook-signature requires webhook-id and webhook-timestamp');
    const head = new TextEncoder().encode(`${id}.${timestamp}.`);
    const signed = new Uint8Array(head.length + payload.length);
    signed.set(head);
    signed.set(payload, head.length);
    const given = standard.split(/\s+/).map((s) => (s.startsWith('v1,') ? fromBase64(s.slice(3)) : undefined));
    if (!(await matches(standardKey(secret), signed, given))) throw new SignatureError('webhook-signature does not match');
    const age = Math.abs(now.getTime() / 1000 - Number(timestamp));
    if (age > tolerance)
      throw new SignatureError(
        `webhook-timestamp differs from the current time by ${Math.round(age)} s, but at most ${tolerance} s is allowed`,
      );
  }
  return JSON.parse(new TextDecoder().decode(payload)) as WebhookEvent;
}

function getter(headers: Headers_): (name: string) => string {
  if (typeof headers.get === 'function') return (name) => (headers as Headers).get(name) ?? '';
  const all = new Map(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), Array.isArray(value) ? value.join(' ') : String(value ?? '')]),
  );
  return (name) => all.get(name) ?? '';
}

async function matches(
  secret: Uint8Array<ArrayBuffer>,
  data: Uint8Array,
  signatures: (Uint8Array<ArrayBuffer> | undefined)[],
): Promise<boolean> {
  const key = await crypto.subtle.importKey('raw', secret, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  let any = false;
  for (const signature of signatures) {
    if (signature && (await crypto.subtle.verify('HMAC', key, signature, data as Uint8Array<ArrayBuffer>))) any = true;
  }
  return any;
}

// standardKey returns the key of Standard Webhooks: the decoded base64 after whsec_, or the bytes of a secret without this form.
function standardKey(secret: string): Uint8Array<ArrayBuffer> {
  const decoded = secret.startsWith('whsec_') ? fromBase64(secret.slice(6)) : undefined;
  return decoded && decoded.length > 0 ? decoded : new TextEncoder().encode(secret);
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return undefined;
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

function fromHex(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-f]*$/.test(text)) return undefined;
  return Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
}
