import { type Field, isLong, isSwitch, list } from '../lib/settings';
import { splitOf } from '../lib/split';
import { AreaField, CheckField, ChoicesField, SelectField, TextField } from './form';
import { IssuersField } from './issuerselect';
import { PlanField } from './planselect';
import { SplitWords } from './split';

// SettingField edits a setting, or a part of one. locked says why it cannot be changed here.
export function SettingField({
  field,
  value,
  error,
  onChange,
  locked,
  words = {},
}: {
  field: Field;
  value: string;
  error?: string;
  onChange: (v: string) => void;
  locked?: string;
  words?: Record<string, string>; // of its choices
}) {
  if (field.kind === 'bool' || isSwitch(field)) {
    return (
      <CheckField
        label={field.label}
        hint={locked ?? field.hint}
        error={error}
        checked={value === 'true'}
        disabled={locked !== undefined}
        onChange={(on) => onChange(String(on))}
      />
    );
  }
  if (field.path === 'default_plan') {
    return <PlanField label={field.label} hint={field.hint} none="None" value={value} error={error} onChange={onChange} />;
  }
  if (field.path === 'issuers') return <IssuersField field={field} value={value} error={error} onChange={onChange} />;
  if (field.kind === 'list' && field.choices) {
    return (
      <div className="col-span-full">
        <ChoicesField
          label={field.label}
          hint={field.hint}
          choices={field.choices}
          value={list(value)}
          error={error}
          onChange={(chosen) => onChange(chosen.join(', '))}
        />
      </div>
    );
  }
  if (field.choices) {
    return (
      <SelectField
        label={field.label}
        hint={field.hint}
        value={value}
        error={error}
        onChange={onChange}
        options={field.choices.map((c) => ({ value: c, label: words[c] ?? c }))}
      />
    );
  }
  if (isLong(field.kind)) {
    return (
      <div className="col-span-full">
        <AreaField
          label={field.label}
          hint={field.hint}
          placeholder={field.placeholder}
          rows={3}
          value={value}
          error={error}
          onChange={onChange}
        />
        {field.kind === 'split' && <SplitWords split={splitOf(value)} upstream="the upstream of its route" />}
      </div>
    );
  }
  return (
    <TextField
      label={field.label}
      hint={locked ?? field.hint}
      placeholder={field.placeholder}
      mono={!field.setting.plain}
      disabled={locked !== undefined}
      value={value}
      error={error}
      onChange={onChange}
    />
  );
}
