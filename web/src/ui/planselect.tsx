import { useList } from '../api/hooks';
import { usePlans } from '../api/plans';
import { Field } from './form';
import { RecordSelect, type SelectProps, useFinding } from './recordselect';

interface Props extends SelectProps {
  label?: string;
  hint?: string;
  error?: string;
  optional?: boolean;
}

// PlanField chooses a plan in a form, by its name.
export function PlanField({ label = 'Plan', hint, error, optional, ...select }: Props) {
  const { plans, more } = usePlans();
  const finding = useFinding();
  const { q } = finding;
  const found = useList('/v1/plans', { query: { q, limit: 100 } }, { enabled: more && q !== '', placeholderData: (old) => old });
  const shown = more && q !== '' ? (found.data?.data.data ?? []) : plans;
  const options = shown.map(({ name, title }) => ({ value: name, label: title ? `${name}: ${title}` : name }));
  return (
    <Field label={label} hint={hint} error={error} optional={optional}>
      {(p) => <RecordSelect {...p} {...select} what="plan" finding={finding} options={options} more={more} />}
    </Field>
  );
}
