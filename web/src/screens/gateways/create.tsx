import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { api, ApiError, type Schemas } from '../../api/client';
import { changed, warn } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { everything, everythingFile } from '../../lib/route';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Failure, Page, Panel } from '../../ui/basic';
import { DocumentField } from '../../ui/document';
import { Form, Submit, TextField } from '../../ui/form';
import { Icon } from '../../ui/icon';

const ways = [
  {
    value: 'everything',
    label: 'Forward everything',
    text: `One route, ${everything.path}, for ${everything.methods.join(', ')}: every path is forwarded for callers with a key whose scope allows it.`,
  },
  { value: 'paste', label: 'OpenAPI document', text: 'Its paths become the routes. Version 3.0, 3.1 or 3.2, as YAML or JSON.' },
  { value: 'git', label: 'Git repository', text: 'Keygate follows a file of a repository. You connect it in the next step.' },
  { value: 'none', label: 'No routes yet', text: 'You add routes later. Until then every request gets a 404.' },
];

// Create asks for the least that a gateway needs.
export default function CreateGateway() {
  const navigate = useNavigate();
  const refused = useRefusal('write', 'gateways');
  const form = useForm({ name: '', upstream_url: '', spec: '' });
  const [way, setWay] = useState('everything');
  const v = form.values;
  // One call creates the gateway with its routes, or nothing.
  const body = {
    name: v.name.trim(),
    upstream_url: v.upstream_url.trim(),
    ...(way === 'paste' && v.spec && { spec: v.spec }),
    ...(way === 'everything' && { config: everythingFile }),
  };
  const submit = () =>
    form.submit(async () => {
      if (way === 'paste' && !v.spec.trim())
        throw new ApiError(0, 'missing', 'Give a document, or choose another way to get routes.', undefined, [
          { field: 'spec', message: 'Give a document, or choose another way to get routes.' },
        ]);
      const { data } = await api.post('/v1/gateways', { body });
      const made = data as Schemas['Gateway'];
      warn(made.gateway_id, made.warnings);
      await changed('/v1/gateways');
      await navigate({
        to: way === 'git' ? '/gateways/$gatewayId/repository' : '/gateways/$gatewayId',
        params: { gatewayId: made.gateway_id },
      });
    });
  const cli = [
    'keygate gateways create',
    `--name ${quote(body.name || 'NAME')}`,
    `--upstream-url ${quote(body.upstream_url || 'URL')}`,
    way === 'paste' && '--spec openapi.yaml',
    way === 'everything' && '--forward-everything',
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <Page title="Create a gateway">
      {refused && <Failure error={refused} />}
      <Panel className="max-w-3xl">
        <Form className="flex flex-col gap-5" onSubmit={submit}>
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="Name"
              required
              autoFocus
              value={v.name}
              onChange={(t) => form.set('name', t)}
              error={form.fieldError('name')}
              placeholder="orders"
            />
            <TextField
              label="Upstream"
              required
              mono
              value={v.upstream_url}
              onChange={(t) => form.set('upstream_url', t)}
              error={form.fieldError('upstream_url')}
              placeholder="http://127.0.0.1:3000"
              hint="The address of your service: http, https or h2c"
            />
          </div>
          <fieldset className="flex flex-col gap-2">
            <legend className="mb-1 font-medium">Routes</legend>
            <div className="grid gap-2 sm:grid-cols-2">
              {ways.map((w) => (
                <label
                  key={w.value}
                  className={`flex cursor-pointer flex-col gap-1 rounded-md border p-3 focus-within:outline-2 focus-within:outline-offset-2 focus-within:outline-accent ${way === w.value ? 'border-accent bg-accent-soft' : 'border-line hover:bg-hover'}`}>
                  <span className="flex items-center gap-2 font-medium">
                    <input
                      type="radio"
                      name="way"
                      value={w.value}
                      aria-labelledby={`way-${w.value}`}
                      aria-describedby={`way-${w.value}-text`}
                      checked={way === w.value}
                      onChange={() => setWay(w.value)}
                      className="accent-(--accent)"
                    />
                    <span id={`way-${w.value}`}>{w.label}</span>
                  </span>
                  <span id={`way-${w.value}-text`} className="text-sm text-muted">
                    {w.text}
                  </span>
                </label>
              ))}
            </div>
          </fieldset>
          {way === 'paste' && (
            <>
              <DocumentField
                label="OpenAPI document"
                value={v.spec}
                onChange={(t) => form.set('spec', t)}
                error={form.fieldError('spec')}
              />
            </>
          )}
          <div>
            <AsCode
              command={{
                cli,
                method: 'POST',
                path: '/v1/gateways',
                body,
                file: `gateway:\n  name: ${JSON.stringify(body.name)}\n  upstream_url: ${JSON.stringify(body.upstream_url)}\n${way === 'everything' ? everythingFile : 'routes: []\n'}`,
              }}
            />
          </div>
          <Submit label="Create the gateway" busy={form.busy} error={form.rest} why={refused} />
        </Form>
      </Panel>
      <p className="flex items-center gap-2 text-muted">
        <Icon name="key" />
        <span>After this, create a key and make the first call: the page of the gateway leads there.</span>
      </p>
    </Page>
  );
}
