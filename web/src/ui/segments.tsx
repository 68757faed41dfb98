// Segments chooses one of a few views of a page.
export function Segments<V extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: V;
  options: { value: V; label: string }[];
  onChange: (v: V) => void;
}) {
  return (
    <div role="group" aria-label={label} className="inline-flex rounded-md border border-line p-0.5">
      {options.map((o) => (
        <button
          key={o.value}
          type="button"
          aria-pressed={o.value === value}
          onClick={() => onChange(o.value)}
          className="h-6 rounded px-2 text-sm whitespace-nowrap text-muted hover:text-text aria-pressed:bg-hover aria-pressed:font-medium aria-pressed:text-text">
          {o.label}
        </button>
      ))}
    </div>
  );
}
