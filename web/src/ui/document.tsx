import { type DragEvent, useId, useState } from 'react';
import { Button } from './basic';
import { inputClass } from './form';

const most = 16 << 20; // bytes (contract, section 2)

// DocumentField takes a document by paste, by choosing a file, or by dropping one.
export function DocumentField({
  label,
  value,
  onChange,
  error,
  hint,
}: {
  label: string;
  value: string;
  onChange: (text: string) => void;
  error?: string;
  hint?: string;
}) {
  const id = useId();
  const [over, setOver] = useState(false);
  const [name, setName] = useState('');
  const [problem, setProblem] = useState('');
  const read = async (file: File | undefined) => {
    if (!file) return;
    if (file.size > most) {
      setProblem(`${file.name} is larger than 16 MiB.`);
      return;
    }
    setProblem('');
    setName(file.name);
    onChange(await file.text());
  };
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    void read(e.dataTransfer.files[0]);
  };
  const shown = problem || error;
  return (
    <div className="flex flex-col gap-1">
      <div className="flex flex-wrap items-end gap-2">
        <label htmlFor={id} className="font-medium">
          {label}
        </label>
        <span className="ml-auto flex items-center gap-2">
          {name && (
            <span className="max-w-48 truncate text-sm text-muted" title={name}>
              {name}
            </span>
          )}
          <label className="inline-flex h-6 cursor-pointer items-center rounded-md border border-line bg-surface px-2 text-sm font-medium focus-within:outline-2 focus-within:outline-offset-2 focus-within:outline-accent hover:bg-hover">
            Choose a file
            <input
              type="file"
              accept=".yaml,.yml,.json,.txt"
              className="sr-only"
              onChange={(e) => {
                void read(e.target.files?.[0]);
                e.target.value = '';
              }}
            />
          </label>
          {value && (
            <Button
              size="sm"
              kind="quiet"
              onClick={() => {
                onChange('');
                setName('');
              }}>
              Clear
            </Button>
          )}
        </span>
      </div>
      <textarea
        id={id}
        value={value}
        rows={12}
        spellCheck={false}
        aria-invalid={shown ? true : undefined}
        aria-describedby={`${id}h`}
        placeholder="Paste it here, or drop a file"
        onChange={(e) => {
          setName('');
          onChange(e.target.value);
        }}
        onDragOver={(e) => {
          e.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
        className={`${inputClass} h-auto resize-y py-2 font-mono text-sm whitespace-pre ${over ? 'border-accent bg-accent-soft' : ''}`}
      />
      <p id={`${id}h`} className={`text-sm whitespace-pre-line ${shown ? 'text-bad' : 'text-muted'}`} role={shown ? 'alert' : undefined}>
        {shown || hint}
      </p>
    </div>
  );
}

// typeOf is the content type of a pasted document.
export const typeOf = (text: string): string => (/^\s*[[{]/.test(text) ? 'application/json' : 'application/yaml');
