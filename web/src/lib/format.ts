export type Count = number | bigint;

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

// count shows every digit of a whole number: 48,000.
export const count = (n: Count): string => whole.format(n);

// short shows three digits or so: 48K. Use it only beside a way to the exact number.
export const short = (n: Count): string => compact.format(n);

const binary = ['KiB', 'MiB', 'GiB', 'TiB'];
const decimal = ['kB', 'MB', 'GB', 'TB'];

// bytes shows about how many bytes there are: 1.5 MiB; or 1.6 MB, if they are shown beside a decimal size.
export function bytes(n: Count, beside: Count = 0): string {
  const [step, units] = isDecimal(beside) ? [1000, decimal] : [1024, binary];
  let value = Number(n);
  if (value < step) return `${value} B`;
  for (const unit of units) {
    value /= step;
    if (value < step || unit === units.at(-1)) return `${value.toFixed(1)} ${unit}`;
  }
  return '';
}

// The units of sizes, the largest first.
const sizes = binary
  .flatMap((name, i) => [
    { name, bytes: 1024n ** BigInt(i + 1) },
    { name: decimal[i] ?? '', bytes: 1000n ** BigInt(i + 1) },
  ])
  .toSorted((a, b) => (a.bytes < b.bytes ? 1 : -1));

const unitOf = (n: Count) => sizes.find((unit) => BigInt(n) > 0n && BigInt(n) % unit.bytes === 0n);

// isDecimal reports whether size shows so many bytes with a decimal unit.
const isDecimal = (n: Count): boolean => decimal.includes(unitOf(n)?.name ?? '');

// size shows bytes exactly, in the largest unit of which there is a whole number: 10 GiB, 1,500 MB, or 1,234,567 bytes.
export function size(n: Count): string {
  const unit = unitOf(n);
  return unit ? `${count(BigInt(n) / unit.bytes)} ${unit.name}` : plural(n, 'byte');
}

// wholeNumber returns a number that was typed as a call takes it, without what separates its digits: "100,000". What is
// no number is returned as it is, so that the server says what is wrong.
export function wholeNumber(text: string): number | bigint | string {
  const plain = text.replaceAll(/[\s,_]/g, '');
  return /^\d+$/.test(plain) ? safe(BigInt(plain)) : text.trim();
}

const safe = (n: bigint): number | bigint => (Number.isSafeInteger(Number(n)) ? Number(n) : n);

const typedSize = /^(\d{1,3}(?:[\s,_]\d{3})+|\d+)(?:\.(\d{1,15}))?\s*([a-z]+)$/i;

// wholeBytes does what wholeNumber does, and takes a unit: "10 GB", "1.5 MiB". What is no whole number of bytes is returned
// as it is.
export function wholeBytes(text: string): number | bigint | string {
  const [, integer = '', fraction = '', name = ''] = typedSize.exec(text.trim()) ?? [];
  const unit = /^b(ytes?)?$/i.test(name) ? 1n : sizes.find((s) => s.name.toLowerCase() === name.toLowerCase())?.bytes;
  if (unit === undefined) return wholeNumber(text);
  const n = BigInt(integer.replaceAll(/\D/g, '') + fraction) * unit;
  const parts = 10n ** BigInt(fraction.length);
  return n % parts === 0n ? safe(n / parts) : text.trim();
}

export function milliseconds(ms: number): string {
  if (ms === 0) return '0 ms';
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 100) return `${ms.toFixed(1)} ms`;
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function percent(part: Count, total: Count): string {
  const share = Number(total) === 0 ? 0 : (Number(part) / Number(total)) * 100;
  if (share === 0) return '0 %';
  return share < 0.1 ? '< 0.1 %' : `${share.toFixed(share < 10 ? 1 : 0)} %`;
}

export const plural = (n: Count, one: string, many = `${one}s`): string => `${count(n)} ${Number(n) === 1 ? one : many}`;
