import { useState } from 'react';
import { useDebounced } from '../lib/debounced';
import { inputClass } from './form';

export interface Option {
  value: string;
  label: string;
}

export interface SelectProps {
  value: string; // "" for none
  onChange: (value: string) => void;
  none?: string; // the label of ""; without it a record must be chosen
  className?: string;
  id?: string;
  'aria-label'?: string;
  'aria-invalid'?: boolean;
  'aria-describedby'?: string;
}

// useFinding is what was typed to find a record, for a RecordSelect, and what to ask the server for.
export function useFinding() {
  const [text, setText] = useState('');
  return { text, setText, q: useDebounced(text.trim(), 200) };
}

// RecordSelect chooses a record of which there may be many. options are the newest ones, or those that were found. If
// there are more, a search box above the choice takes a text. chosen is the name of the value if it is not an option.
export function RecordSelect({
  what,
  finding,
  options,
  more,
  chosen,
  value,
  onChange,
  none,
  className = '',
  ...rest
}: SelectProps & { what: string; finding: ReturnType<typeof useFinding>; options: Option[]; more: boolean; chosen?: string }) {
  const known = options.some((o) => o.value === value);
  const select = (
    <select {...rest} value={value} onChange={(e) => onChange(e.target.value)} className={`${inputClass} ${className}`}>
      {none !== undefined && <option value="">{none}</option>}
      {value !== '' && !known && <option value={value}>{chosen ?? value}</option>}
      {options.map((o) => (
        <option key={o.value} value={o.value}>
          {o.label}
        </option>
      ))}
    </select>
  );
  if (!more) return select;
  return (
    <span className="flex flex-wrap gap-1">
      <input
        type="search"
        aria-label={`Find a ${what}`}
        placeholder={`Find a ${what}`}
        value={finding.text}
        onChange={(e) => finding.setText(e.target.value)}
        className={`${inputClass} ${className}`}
      />
      {select}
    </span>
  );
}
