import { Link } from '@tanstack/react-router';
import { useRef, useState } from 'react';
import { api, ApiError, type Schemas } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { milliseconds } from '../../lib/format';
import { useForm } from '../../lib/form';
import { type Call, methodNames } from '../../lib/route';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Button, Code, Details, Failure, Id, Panel, Status, type Tone } from '../../ui/basic';
import { AreaField, Field, Form, inputClass, SelectField, TextField } from '../../ui/form';
import { type Pair, Pairs, toRecord } from '../../ui/pairs';
import { explain } from '../requests/explain';

type Response = Schemas['Try'];

// TryIt sends a request to a gateway through the server, and shows the response and, for a refusal, its reason. call
// is what its fields begin with. The key is in its input and nowhere else, and is gone with the page.
export function TryIt({ gateway, call, route }: { gateway: Schemas['Gateway']; call: Call | undefined; route?: string }) {
  const id = gateway.gateway_id;
  const refused = useRefusal('write', `gateways/${id}/try`);
  const key = useRef<HTMLInputElement>(null);
  const form = useForm({ method: call?.method ?? 'GET', path: call?.path ?? '/', headers: [] as Pair[], body: '' });
  const [response, setResponse] = useState<Response | null>(null);
  const v = form.values;
  const headers = toRecord(v.headers);
  const body = { method: v.method, path: v.path, ...(Object.keys(headers).length > 0 && { headers }), ...(v.body && { body: v.body }) };
  const send = () =>
    form.submit(async () => {
      setResponse(null);
      const given = key.current?.value.trim();
      const { data } = await api.post('/v1/gateways/{gateway_id}/try', {
        path: { gateway_id: id },
        body: { ...body, ...(given && { key: given }) },
      });
      setResponse(data);
      void changed('/v1/reports', '/v1/requests', '/v1/gateways/{gateway_id}/limits');
    });
  const headerError = form.error?.fields.find((f) => f.field === 'headers' || f.field.startsWith('headers.'));
  const more = v.headers.length > 0 || v.body !== '';
  return (
    <Panel
      title="Try it"
      actions={
        <AsCode
          command={{
            cli: [
              `keygate try ${v.method} ${quote(v.path)} --gateway ${id}`,
              ...Object.entries(headers).map(([name, value]) => `--header ${quote(`${name}=${value}`)}`),
              v.body && '--data body.txt',
              '--key-file caller.key',
            ]
              .filter(Boolean)
              .join(' '),
            method: 'POST',
            path: `/v1/gateways/${id}/try`,
            body: { ...body, key: 'kg_…' },
          }}
        />
      }>
      <Form className="flex flex-col gap-3" onSubmit={() => !refused && !form.busy && send()}>
        <p className="text-muted">
          {refused ??
            'Sends a request through this server. It is checked, counted and charged like any other, and the audit log has its method and path. The key is not kept.'}
          {route?.includes('{') && !refused && ' Each parameter of the path is 1 here.'}
        </p>
        <div className="grid grid-cols-[7rem_minmax(0,1fr)] items-start gap-3 lg:grid-cols-[7rem_minmax(0,1fr)_minmax(0,16rem)_auto]">
          <SelectField
            label="Method"
            value={v.method}
            onChange={(t) => form.set('method', t)}
            error={form.fieldError('method')}
            options={[...new Set([...methodNames, v.method])].map((m) => ({ value: m, label: m }))}
          />
          <TextField label="Path" mono value={v.path} onChange={(t) => form.set('path', t)} error={form.fieldError('path')} />
          <div className="col-span-2 lg:col-span-1">
            <Field label="Key of the caller" optional error={form.fieldError('key')}>
              {(p) => (
                // Not a controlled input: React would write the key into an attribute of the page.
                <input {...p} ref={key} type="password" autoComplete="off" placeholder="kg_…" className={`${inputClass} font-mono`} />
              )}
            </Field>
          </div>
          <Button type="submit" kind="primary" busy={form.busy} why={refused} className="col-span-2 lg:col-span-1 lg:mt-6">
            Send
          </Button>
        </div>
        <details open={more || headerError !== undefined || form.fieldError('body') !== undefined ? true : undefined}>
          <summary className="w-fit text-muted">Headers and body</summary>
          <div className="grid grid-cols-[minmax(0,1fr)] gap-4 pt-3 md:grid-cols-2">
            <Pairs
              label="Headers"
              max={100}
              value={v.headers}
              onChange={(h) => form.set('headers', h)}
              error={headerError && `${headerError.field.replace(/^headers\.?/, '')} ${headerError.message}`.trim()}
            />
            <AreaField
              label="Body"
              optional
              rows={4}
              value={v.body}
              onChange={(t) => form.set('body', t)}
              error={form.fieldError('body')}
            />
          </div>
        </details>
        {form.error && !atField(form.error) && <Failure error={form.error} />}
      </Form>
      <p role="status" className="sr-only">
        {response && `The response has the status ${response.status}.`}
      </p>
      {response && <Result response={response} gateway={gateway.name} route={route} />}
    </Panel>
  );
}

// atField reports whether an error is shown at its field.
const atField = (e: ApiError): boolean => e.fields.length > 0 && e.fields.every((f) => /^(method|path|key|body|headers)\b/.test(f.field));

function Result({ response: r, gateway, route }: { response: Response; gateway: string; route?: string }) {
  const noRequests = useRefusal('read', 'requests');
  // The log has refusals and failures. Its record names the key, which the decision alone does not.
  const logged = useRecord(
    '/v1/requests/{request_id}',
    { path: { request_id: r.request_id } },
    { enabled: r.decision !== null && !noRequests, staleTime: Infinity, retry: false },
  ).data?.data;
  const tone: Tone = r.status < 400 ? 'ok' : r.status < 500 ? 'warn' : 'bad';
  return (
    <section aria-label="Response" className="mt-4 flex flex-col gap-3 border-t border-line pt-4">
      <p className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <Status tone={tone}>{r.status}</Status>
        <span className="tabular-nums">{milliseconds(r.duration_ms)}</span>
        <Id value={r.request_id} />
        {r.decision && (
          <Link to="/requests/$requestId" params={{ requestId: r.request_id }} className="link">
            Why, in full
          </Link>
        )}
      </p>
      <p className="max-w-[960px] break-words">{wordsOf(r, logged && explain(logged, { gateway, route }))}</p>
      {r.body !== '' &&
        (r.body_base64 ? (
          <p className="text-muted">The body is not text.</p>
        ) : (
          <Code label="Body of the response" text={readable(r)} exact={r.body} wrap />
        ))}
      {r.truncated && (
        <p className="text-sm text-warn">The body is not complete: only the first 64 KiB are shown, and what came within 30 seconds.</p>
      )}
      <details>
        <summary className="w-fit text-muted">Headers of the response</summary>
        <div className="pt-3">
          <Details
            rows={Object.entries(r.headers)
              .toSorted(([a], [b]) => (a < b ? -1 : 1))
              .map(([name, values]) => [
                name,
                <code key={name} className="font-mono text-sm break-all">
                  {values.join(', ')}
                </code>,
              ])}
          />
        </div>
      </details>
    </section>
  );
}

// wordsOf says what became of a request.
function wordsOf(r: Response, explained: string | undefined): string {
  if (r.decision) return explained ?? `Decided by ${r.decision.check}: ${r.decision.message}.`;
  if (r.status < 400) return 'The request passed: this is the response of the upstream.';
  return 'The gateway let the request pass, or its refusal is not in the log of requests.';
}

// readable is the body of a response, with JSON on lines of its own.
function readable({ body, headers }: Response): string {
  if (body.length > 16_384 || !/\bjson\b/.test((headers['Content-Type'] ?? []).join())) return body;
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
