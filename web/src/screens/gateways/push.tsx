import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Answer, ApiError, type Schemas } from '../../api/client';
import { dryRun } from '../../api/dryrun';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { AsCode } from '../../ui/ascode';
import { Button, Empty, Failure, Panel, Skeleton } from '../../ui/basic';
import { DocumentField, typeOf } from '../../ui/document';
import { SelectField } from '../../ui/form';
import { Icon } from '../../ui/icon';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';
import { Difference } from './difference';

type Push = Schemas['Push'];
type Kind = 'spec' | 'config';

const calls = { spec: '/v1/gateways/{gateway_id}/spec', config: '/v1/gateways/{gateway_id}/config' } as const;

// kindOf guesses whether a document is a configuration file.
const kindOf = (text: string): Kind =>
  /^\s*"?(openapi|swagger)"?\s*:/m.test(text) ? 'spec' : /^\s*"?gateway"?\s*:/m.test(text) ? 'config' : 'spec';

// PushPage shows what a document would change, and what that would have done to the last 24 hours, before
// it is pushed.
export default function PushPage() {
  const { gatewayId, query } = useGateway();
  const navigate = useNavigate();
  const refused = useRefusal('write', `gateways/${gatewayId}`);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState<Kind | ''>('');
  const [preview, setPreview] = useState<{ text: string; answer: Answer<Push>; etag: string | null } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState<'' | 'preview' | 'push'>('');
  const kind = chosen || kindOf(text);
  const path = { gateway_id: gatewayId };
  const fresh = preview?.text === kind + text;

  const run = async (what: 'preview' | 'push') => {
    setBusy(what);
    setError(null);
    try {
      const document = { content: text, type: typeOf(text) };
      if (what === 'preview') {
        const etag = (await api.get('/v1/gateways/{gateway_id}', { path })).etag;
        const answer = (await dryRun((q) => api.put(calls[kind], { path, text: document, query: q }))) as Answer<Push>;
        setPreview({ text: kind + text, answer, etag });
      } else {
        const { data } = (await api.put(calls[kind], { path, text: document, ifMatch: preview?.etag })) as Answer<Push>;
        toast(data.revision ? `Revision ${data.revision} is in force` : 'Nothing has changed');
        await changed('/v1/gateways');
        await navigate({ to: '/gateways/$gatewayId/revisions', params: { gatewayId } });
      }
    } catch (e) {
      if (e instanceof ApiError && e.status === 412) {
        setPreview(null);
        setError(new ApiError(412, e.kind, 'The gateway has changed since the preview. Nothing was pushed: look at the preview again.'));
      } else setError(e instanceof ApiError ? e : new ApiError(0, 'unexpected', String(e)));
    }
    setBusy('');
  };
  const name = query.data?.data.name ?? gatewayId;
  const push = preview?.answer.data;
  const idle = push !== undefined && push.added.length + push.removed.length + push.changed.length + (push.gateway?.length ?? 0) === 0;
  return (
    <div className="grid items-start gap-4 lg:grid-cols-2">
      <Panel title="Document">
        <div className="flex flex-col gap-4">
          <DocumentField
            label="OpenAPI document or configuration file"
            value={text}
            onChange={setText}
            hint="A push replaces all routes of the gateway."
          />
          <SelectField
            label="Kind"
            value={chosen}
            onChange={(k) => setChosen(k as Kind | '')}
            options={[
              { value: '', label: `As it looks: ${kindOf(text) === 'spec' ? 'OpenAPI document' : 'configuration file'}` },
              { value: 'spec', label: 'OpenAPI document' },
              { value: 'config', label: 'Configuration file' },
            ]}
          />
          {error && <Failure error={error} />}
          <div className="flex flex-wrap items-center gap-2">
            <AsCode
              command={{
                cli:
                  kind === 'spec'
                    ? `keygate spec push --gateway ${gatewayId} openapi.yaml`
                    : `keygate config apply --gateway ${gatewayId} keygate.yaml`,
                method: 'PUT',
                path: `/v1/gateways/${gatewayId}/${kind}`,
              }}
            />
            <span className="ml-auto">
              <Button
                kind={fresh ? 'plain' : 'primary'}
                why={refused}
                disabled={!text.trim()}
                busy={busy === 'preview'}
                onClick={() => void run('preview')}>
                Preview
              </Button>
            </span>
          </div>
        </div>
      </Panel>
      <Panel
        title={`What it changes in ${name}`}
        actions={
          push &&
          !idle && (
            <Button
              kind="primary"
              icon="upload"
              why={refused}
              disabled={!fresh || busy !== ''}
              busy={busy === 'push'}
              onClick={() => void run('push')}>
              Push
            </Button>
          )
        }>
        {busy === 'preview' ? (
          <div className="flex flex-col gap-2" role="status">
            <span className="sr-only">Comparing</span>
            <Skeleton className="h-5 w-64" />
            <Skeleton className="h-24 w-full" />
          </div>
        ) : busy === 'push' ? (
          <p role="status" className="flex items-center gap-2">
            <Icon name="upload" />
            Pushing. A large document takes some seconds; leaving this page does not stop it.
          </p>
        ) : push ? (
          <>
            {!fresh && <p className="mb-3 text-warn">The document was edited after this preview: look at it again before you push.</p>}
            <Difference push={push} />
          </>
        ) : (
          <Empty icon="upload" title="Preview a document">
            You see the routes that it adds, removes and changes, and how many of the last day’s requests it would have refused, before
            anything is in force.
          </Empty>
        )}
      </Panel>
    </div>
  );
}
