import { type Answer, api, type Schemas } from '../../api/client';
import { changed, warn } from '../../api/hooks';
import { useIssuers } from '../../api/issuers';
import { useRefusal } from '../../api/session';
import { useUpstreams } from '../../api/upstreams';
import { useEdit } from '../../lib/edit';
import { gatewaySettings, matches, type Values } from '../../lib/settings';
import { AsCode } from '../../ui/ascode';
import { Failure, Panel, Skeleton } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { SettingField } from '../../ui/setting';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';

type Gateway = Schemas['Gateway'];

const { bodyOf, flagsOf, labels, maskSecrets, sections, valuesOf } = gatewaySettings;

export default function GatewaySettings() {
  const { gatewayId, query } = useGateway();
  const { waits } = useIssuers(); // their field has another size without them
  if (!query.data || waits) return query.error ? <Failure error={query.error} /> : <Skeleton className="h-96 w-full" />;
  return <SettingsForm key={gatewayId} first={query.data} />;
}

// SettingsForm sends the fields that were touched, with the ETag of the record that it began with.
function SettingsForm({ first }: { first: Answer<Gateway> }) {
  const id = first.data.gateway_id;
  const form = useEdit<Gateway, Values>({
    first,
    valuesOf,
    labels,
    read: () => api.get('/v1/gateways/{gateway_id}', { path: { gateway_id: id } }),
  });
  const refused = useRefusal('write', `gateways/${id}`);
  const v = form.values;
  const targets = useUpstreams(id).data?.data.data[0]?.targets ?? []; // of the upstream default
  const locks: Record<string, string> = {
    ...(form.base.default && { default: 'Make another gateway the default to change this.' }),
    ...(targets.length > 1 && { upstream_url: 'It has several targets. Change them on the page of the upstream default.' }),
  };
  const body = bodyOf(form.changes, v);
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}', { path: { gateway_id: id }, body, ifMatch }),
      saved: async (answer) => {
        form.begin(answer);
        warn(id, answer.data.warnings);
        toast(`Gateway “${answer.data.name}” was saved`);
        await changed('/v1/gateways');
      },
    });
  const touched = sections.flatMap((s) => s.fields).filter((f) => f.path in form.changes);
  const cli = ['keygate gateways update', id, ...flagsOf(form.changes, v)].join(' ');
  return (
    <Form onSubmit={submit}>
      {sections.map((s) => (
        <Panel key={s.title} title={s.title}>
          {s.text && <p className="mb-3 text-muted">{s.text}</p>}
          <div className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3">
            {s.fields.map((f) => (
              <SettingField
                key={f.path}
                field={f}
                value={v[f.path] ?? ''}
                error={form.errorAt((e) => matches(f, e))}
                onChange={(t) => form.set(f.path, t)}
                locked={locks[f.path]}
              />
            ))}
          </div>
        </Panel>
      ))}
      <SubmitBar>
        {form.conflict && <Conflict {...form.conflict} />}
        <Submit
          label="Save"
          busy={form.busy}
          error={form.rest}
          unchanged={!form.dirty}
          why={refused}
          disabled={form.conflict !== null}
          onCancel={form.dirty ? form.discard : undefined}
          beside={
            <>
              <span className="line-clamp-2 min-w-0 flex-1 text-muted">
                {form.dirty ? `Changed: ${touched.map((f) => f.label).join(', ')}` : 'Nothing is changed.'}
              </span>
              <AsCode
                command={{ cli, method: 'PATCH', path: `/v1/gateways/${id}`, body: maskSecrets(body) }}
                why={form.dirty ? null : 'Nothing has been changed yet.'}
              />
            </>
          }
        />
      </SubmitBar>
    </Form>
  );
}
