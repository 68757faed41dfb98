import { useGateways } from '../api/gateways';
import { useList, useRecord } from '../api/hooks';
import { markedGateways } from '../api/names';
import { tellApart } from '../lib/names';
import { Field } from './form';
import { RecordSelect, type SelectProps, useFinding } from './recordselect';

// GatewaySelect chooses a gateway.
export function GatewaySelect(props: SelectProps) {
  const { gateways, more } = useGateways();
  const finding = useFinding();
  const { q } = finding;
  const found = useList('/v1/gateways', { query: { q, limit: 100 } }, { enabled: more && q !== '', placeholderData: (old) => old });
  const shown = more && q !== '' ? (found.data?.data.data ?? []) : gateways;
  const nameOf = tellApart(markedGateways(shown));
  const chosen = useRecord(
    '/v1/gateways/{gateway_id}',
    { path: { gateway_id: props.value } },
    { enabled: props.value !== '' && !shown.some((g) => g.gateway_id === props.value), retry: false, staleTime: 30_000 },
  );
  const options = shown.map((g) => ({ value: g.gateway_id, label: nameOf(g.gateway_id) }));
  return <RecordSelect {...props} what="gateway" finding={finding} options={options} more={more} chosen={chosen.data?.data.name} />;
}

// GatewayField is GatewaySelect in a form.
export function GatewayField({ error, optional, hint, ...select }: SelectProps & { error?: string; optional?: boolean; hint?: string }) {
  return (
    <Field label="Gateway" error={error} optional={optional} hint={hint}>
      {(p) => <GatewaySelect {...p} {...select} />}
    </Field>
  );
}
