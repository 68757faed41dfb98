export type Count = number | bigint;

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

// count shows every digit of a whole number: 48,000.
export const count = (n: Count): string => whole.format(n);

// short shows three digits or so: 48K. Use it only beside a way to the exact number.
export const short = (n: Count): string => compact.format(n);

export function bytes(n: Count): string {
  let value = Number(n);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (value < 1024 || unit === 'TiB') return `${unit === 'B' ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return '';
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
