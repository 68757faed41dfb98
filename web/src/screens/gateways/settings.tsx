import { useState } from 'react';
import { api, type Answer, ApiError, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { AsCode } from '../../ui/ascode';
import { Failure, Panel, Skeleton } from '../../ui/basic';
import { Conflict, type Difference } from '../../ui/conflict';
import { AreaField, CheckField, Submit, TextField } from '../../ui/form';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';
import { bodyOf, flagsOf, maskSecrets, type FieldName, type FieldSpec, labelOf, matches, sections, type Values, valuesOf } from './fields';

type Gateway = Schemas['Gateway'];

export default function GatewaySettings() {
  const { gatewayId, query } = useGateway();
  if (!query.data) return query.error ? <Failure error={query.error} /> : <Skeleton className="h-96 w-full" />;
  return <Form key={gatewayId} first={query.data} />;
}

// Form sends the fields that were touched, with the ETag of the record that it began with.
function Form({ first }: { first: Answer<Gateway> }) {
  const id = first.data.gateway_id;
  const [base, setBase] = useState(first);
  const [newer, setNewer] = useState<{ answer: Answer<Gateway>; differences: Difference[] } | null>(null);
  const form = useForm<Values>(valuesOf(first.data));
  const refused = useRefusal('write', `gateways/${id}`);
  const v = form.values;
  const body = bodyOf(form.changes, v);
  const submit = () =>
    form.submit(async () => {
      if (!form.dirty) {
        toast('There was nothing to save');
        return;
      }
      try {
        const answer = await api.patch('/v1/gateways/{gateway_id}', { path: { gateway_id: id }, body, ifMatch: base.etag });
        setBase(answer);
        form.reset(valuesOf(answer.data));
        toast(`Gateway “${answer.data.name}” was saved`);
        await changed('/v1/gateways');
      } catch (e) {
        if (!(e instanceof ApiError) || e.status !== 412) throw e;
        const answer = await api.get('/v1/gateways/{gateway_id}', { path: { gateway_id: id } });
        const [before, theirs] = [valuesOf(base.data), valuesOf(answer.data)];
        setNewer({
          answer,
          differences: (Object.keys(theirs) as FieldName[])
            .filter((n) => theirs[n] !== before[n])
            .map((n) => ({ name: labelOf(n), theirs: theirs[n] || 'empty', mine: n in form.changes ? v[n] || 'empty' : undefined })),
        });
      }
    });
  const errorOf = (name: FieldName) => form.error?.fields.find((f) => matches(name, f.field))?.message;
  const touched = sections.flatMap((s) => s.fields).filter((f) => f.name in form.changes);
  const cli = ['keygate gateways update', id, ...flagsOf(form.changes, v)].join(' ');
  return (
    <form
      className="flex max-w-4xl flex-col gap-4"
      onSubmit={(e) => {
        e.preventDefault();
        void submit();
      }}>
      {sections.map((s) => (
        <Panel key={s.title} title={s.title}>
          {s.text && <p className="mb-3 text-muted">{s.text}</p>}
          <div className="grid gap-4 sm:grid-cols-2">
            {s.fields.map((f) => (
              <Setting
                key={f.name}
                spec={f}
                value={v[f.name]}
                error={errorOf(f.name)}
                onChange={(t) => form.set(f.name, t)}
                locked={f.name === 'default' && base.data.default}
              />
            ))}
          </div>
        </Panel>
      ))}
      <div className="sticky bottom-0 flex flex-col gap-3 rounded-lg border border-line bg-raised p-4 shadow-lg">
        {newer && (
          <Conflict
            differences={newer.differences}
            onKeep={() => {
              setBase(newer.answer);
              form.reset(valuesOf(newer.answer.data));
              for (const [n, t] of Object.entries(form.changes)) form.set(n as FieldName, t);
              setNewer(null);
            }}
            onTake={() => {
              setBase(newer.answer);
              form.reset(valuesOf(newer.answer.data));
              setNewer(null);
            }}
          />
        )}
        <div className="flex flex-wrap items-center gap-2">
          <span className="text-muted">{form.dirty ? `Changed: ${touched.map((f) => f.label).join(', ')}` : 'Nothing is changed.'}</span>
          <span className="ml-auto">
            <AsCode command={{ cli, method: 'PATCH', path: `/v1/gateways/${id}`, body: maskSecrets(body) }} />
          </span>
        </div>
        <Submit
          label="Save"
          busy={form.busy}
          error={form.error}
          why={refused}
          disabled={newer !== null}
          onCancel={form.dirty ? () => form.reset(valuesOf(base.data)) : undefined}
        />
      </div>
    </form>
  );
}

function Setting({
  spec,
  value,
  error,
  onChange,
  locked,
}: {
  spec: FieldSpec;
  value: string;
  error?: string;
  onChange: (v: string) => void;
  locked: boolean;
}) {
  if (spec.kind === 'check') {
    return (
      <CheckField
        label={spec.label}
        hint={locked ? 'Make another gateway the default to change this.' : spec.hint}
        checked={value === 'true'}
        disabled={locked}
        onChange={(on) => onChange(String(on))}
      />
    );
  }
  if (spec.kind === 'area') {
    return (
      <div className="sm:col-span-2">
        <AreaField
          label={spec.label}
          hint={spec.hint}
          placeholder={spec.placeholder}
          rows={3}
          value={value}
          error={error}
          onChange={onChange}
        />
      </div>
    );
  }
  return (
    <TextField
      label={spec.label}
      hint={spec.hint}
      placeholder={spec.placeholder}
      mono={spec.kind !== 'plain'}
      value={value}
      error={error}
      onChange={onChange}
    />
  );
}
