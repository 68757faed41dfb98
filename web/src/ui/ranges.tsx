import type { Range } from '../lib/time';

const names: Record<Range, string> = { '15m': '15 minutes', '1h': '1 hour', '24h': '24 hours', '7d': '7 days' };

// Ranges chooses how far back a page looks.
export function Ranges({ value, onChange, options }: { value: Range | ''; onChange: (r: Range) => void; options: Range[] }) {
  return (
    <div role="group" aria-label="Range" className="inline-flex rounded-md border border-line p-0.5">
      {options.map((r) => (
        <button
          key={r}
          type="button"
          aria-pressed={r === value}
          title={names[r]}
          onClick={() => onChange(r)}
          className="h-6 rounded px-2 text-sm text-muted hover:text-text aria-pressed:bg-hover aria-pressed:font-medium aria-pressed:text-text">
          {r}
        </button>
      ))}
    </div>
  );
}
