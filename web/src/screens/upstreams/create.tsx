import { useNavigate, useParams } from '@tanstack/react-router';
import { api, ApiError } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { upstreamSettings } from '../../lib/settings';
import { quote } from '../../lib/shell';
import { upstreamBody, upstreamFlags, type UpstreamValues, upstreamValues } from '../../lib/upstream';
import { AsCode } from '../../ui/ascode';
import { Panel } from '../../ui/basic';
import { Form, Submit, SubmitBar, TextField } from '../../ui/form';
import { toast } from '../../ui/toast';
import { UpstreamFields } from './form';

type Values = UpstreamValues & { name: string };

// problem is what is wrong with the name.
const problem = (message: string) => new ApiError(0, 'invalid', message, undefined, [{ field: 'name', message }]);

// CreateUpstream asks for a name and at least one target.
export default function CreateUpstream() {
  const { gatewayId } = useParams({ from: '/gateways/$gatewayId/new-upstream' });
  const path = { gateway_id: gatewayId };
  const navigate = useNavigate();
  const form = useForm<Values>(Object.assign(upstreamValues(), { name: '' }));
  const name = form.values.name.trim();
  const refused = useRefusal('write', `gateways/${gatewayId}/upstreams/${name}`);
  const { name: _, ...changes } = form.changes;
  const touched = { ...changes, targets: form.values.targets } as Partial<UpstreamValues>;
  const body = upstreamBody(touched, form.values);
  const submit = () =>
    form.submit(async () => {
      if (name === '') throw problem('must not be empty');
      // The call replaces an upstream that exists. With the ETag, it fails if one is created after the look.
      const { etag } = await api.get('/v1/gateways/{gateway_id}', { path });
      const { data } = await api.get('/v1/gateways/{gateway_id}/upstreams', { path, query: { limit: 100 } });
      if (data.data.some((u) => u.name === name)) throw problem('is taken: give another one, or edit that upstream');
      await api.put('/v1/gateways/{gateway_id}/upstreams/{upstream}', { path: { ...path, upstream: name }, body, ifMatch: etag });
      toast(`Upstream “${name}” is created`);
      await changed('/v1/gateways');
      await navigate({ to: '/gateways/$gatewayId/upstreams/$upstream', params: { gatewayId, upstream: name } });
    });
  const cli = [`keygate upstreams set --gateway ${gatewayId} ${quote(name || 'NAME')}`, ...upstreamFlags(touched, form.values)].join(' ');
  return (
    <Form
      aria-labelledby="new-upstream"

      onSubmit={submit}>
      <h2 id="new-upstream" className="text-lg font-semibold">
        Add an upstream
      </h2>
      <Panel title="Name">
        <div className="max-w-md">
          <TextField
            label="Name"
            required
            autoFocus
            mono
            maxLength={64}
            placeholder="next"
            hint="Of a-z, 0-9, - and _. Routes name the upstream by it."
            value={form.values.name}
            onChange={(t) => form.set('name', t)}
            error={form.errorAt((f) => f === 'name')}
          />
        </div>
      </Panel>
      <UpstreamFields form={form as never} />
      <SubmitBar>
        <Submit
          beside={
            <AsCode
              command={{
                cli,
                method: 'PUT',
                path: `/v1/gateways/${gatewayId}/upstreams/${encodeURIComponent(name || 'NAME')}`,
                body: upstreamSettings.maskSecrets(body),
              }}
            />
          }
          label="Create the upstream"
          busy={form.busy}
          error={form.rest}
          why={refused}
          onCancel={() => void navigate({ to: '/gateways/$gatewayId/upstreams', params: { gatewayId } })}
        />
      </SubmitBar>
    </Form>
  );
}
