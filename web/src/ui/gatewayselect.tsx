import { useState } from 'react';
import { useGateways } from '../api/gateways';
import { useList, useRecord } from '../api/hooks';
import { markedGateways } from '../api/names';
import { useDebounced } from '../lib/debounced';
import { tellApart } from '../lib/names';
import { Field, inputClass } from './form';

interface Props {
  value: string; // an identifier, or "" for none
  onChange: (gatewayId: string) => void;
  none?: string; // the label of ""; without it a gateway must be chosen
  className?: string;
}

// GatewaySelect chooses a gateway. If the account has more gateways than one page of the list, a search box above
// it asks the server.
export function GatewaySelect({
  value,
  onChange,
  none,
  className = '',
  ...rest
}: Props & { id?: string; 'aria-label'?: string; 'aria-invalid'?: boolean; 'aria-describedby'?: string }) {
  const { gateways, more } = useGateways();

  const [text, setText] = useState('');
  const q = useDebounced(text.trim(), 200);
  const found = useList('/v1/gateways', { query: { q, limit: 100 } }, { enabled: more && q !== '', placeholderData: (old) => old });
  const shown = more && q !== '' ? (found.data?.data.data ?? []) : gateways;
  const nameOf = tellApart(markedGateways(shown));
  const known = shown.find((g) => g.gateway_id === value);
  const chosen = useRecord(
    '/v1/gateways/{gateway_id}',
    { path: { gateway_id: value } },
    { enabled: value !== '' && !known, retry: false, staleTime: 30_000 },
  );
  const select = (
    <select {...rest} value={value} onChange={(e) => onChange(e.target.value)} className={`${inputClass} ${className}`}>
      {none !== undefined && <option value="">{none}</option>}
      {value !== '' && !known && <option value={value}>{chosen.data?.data.name ?? value}</option>}
      {shown.map((g) => (
        <option key={g.gateway_id} value={g.gateway_id}>
          {nameOf(g.gateway_id)}
        </option>
      ))}
    </select>
  );
  if (!more) return select;
  return (
    <span className="flex flex-wrap gap-1">
      <input
        type="search"
        aria-label="Find a gateway"
        placeholder="Find a gateway"
        value={text}
        onChange={(e) => setText(e.target.value)}
        className={`${inputClass} ${className}`}
      />
      {select}
    </span>
  );
}

// GatewayField is GatewaySelect in a form.
export function GatewayField({ error, optional, hint, ...select }: Props & { error?: string; optional?: boolean; hint?: string }) {
  return (
    <Field label="Gateway" error={error} optional={optional} hint={hint}>
      {(p) => <GatewaySelect {...p} {...select} />}
    </Field>
  );
}
