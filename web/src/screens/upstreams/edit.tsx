import { useNavigate, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { usePresentCanary } from '../../api/canaries';
import { type Answer, api } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Upstream } from '../../api/upstreams';
import { useEdit } from '../../lib/edit';
import { upstreamSettings } from '../../lib/settings';
import { showValue, upstreamBody, upstreamFlags, type UpstreamValues, upstreamValues } from '../../lib/upstream';
import { AsCode } from '../../ui/ascode';
import { Failure, Skeleton } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { ConfirmDialog } from '../../ui/dialog';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { toast } from '../../ui/toast';
import { CanaryNotice } from '../canaries/state';
import { UpstreamFields } from './form';

export default function EditUpstream() {
  const { gatewayId, upstream } = useParams({ from: '/gateways/$gatewayId/upstreams/$upstream/edit' });
  const path = { gateway_id: gatewayId, upstream };
  const query = useRecord('/v1/gateways/{gateway_id}/upstreams/{upstream}', { path });
  const canary = usePresentCanary(gatewayId); // what it says moves nothing
  if (query.data && !canary.pending) return <UpstreamForm key={upstream} gatewayId={gatewayId} first={query.data} />;
  return query.error ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Skeleton className="h-96 w-full" />;
}

const labels = { targets: 'Targets', ...upstreamSettings.labels };

// UpstreamForm sends the fields that were touched, with the ETag of the gateway that it began with. If targets are to be removed,
// it asks first.
function UpstreamForm({ gatewayId, first }: { gatewayId: string; first: Answer<Upstream> }) {
  const { name } = first.data;
  const path = { gateway_id: gatewayId, upstream: name };
  const navigate = useNavigate();
  const refused = useRefusal('write', `gateways/${gatewayId}/upstreams/${name}`);
  const [removing, setRemoving] = useState<string[]>([]);
  const form = useEdit<Upstream, UpstreamValues>({
    first,
    valuesOf: upstreamValues,
    labels,
    show: showValue,
    read: () => api.get('/v1/gateways/{gateway_id}/upstreams/{upstream}', { path }),
  });
  const body = upstreamBody(form.changes, form.values);
  const leave = () => navigate({ to: '/gateways/$gatewayId/upstreams/$upstream', params: { gatewayId, upstream: name } });
  const save = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/upstreams/{upstream}', { path, body, ifMatch }),
      saved: async () => {
        toast(`Upstream “${name}” was saved`);
        await changed('/v1/gateways');
        await leave();
      },
    });
  const submit = () => {
    const left = form.values.targets.map((t) => t.url.trim());
    const gone = form.base.targets.map((t) => t.url).filter((url) => !left.includes(url));
    if (gone.length > 0) setRemoving(gone);
    else void save();
  };
  const cli = [`keygate upstreams set --gateway ${gatewayId} ${name}`, ...upstreamFlags(form.changes, form.values)].join(' ');
  return (
    <>
      <Form
        aria-labelledby="edit-upstream"

        onSubmit={submit}>
        <h2 id="edit-upstream" className="text-lg font-semibold break-all">
          Edit “{name}”
        </h2>
        <CanaryNotice gatewayId={gatewayId} concerns={(c) => c.state === 'running' && [c.upstream, c.other].includes(name)}>
          a change of this upstream pauses it.
        </CanaryNotice>
        <UpstreamFields form={form} />
        <SubmitBar>
          {form.conflict && <Conflict {...form.conflict} />}
          <Submit
            label="Save"
            busy={form.busy}
            error={form.rest}
            unchanged={!form.dirty}
            why={refused}
            disabled={form.conflict !== null}
            onCancel={() => void leave()}
            beside={
              <AsCode
                command={{
                  cli,
                  method: 'PATCH',
                  path: `/v1/gateways/${gatewayId}/upstreams/${name}`,
                  body: upstreamSettings.maskSecrets(body),
                }}
                why={form.dirty ? null : 'Nothing has been changed yet.'}
              />
            }
          />
        </SubmitBar>
      </Form>
      {removing.length > 0 && (
        <ConfirmDialog
          title={removing.length === 1 ? 'Remove the target' : `Remove ${removing.length} targets`}
          action={removing.length === 1 ? 'Save, and remove the target' : 'Save, and remove the targets'}
          onClose={() => setRemoving([])}
          run={save}>
          <p>
            These are no longer targets of the upstream, and get no more requests. Those in flight have the gateway’s drain timeout to end.
          </p>
          <ul className="list-disc pl-6">
            {removing.map((url) => (
              <li key={url} className="font-mono text-sm break-all">
                {url}
              </li>
            ))}
          </ul>
        </ConfirmDialog>
      )}
    </>
  );
}
