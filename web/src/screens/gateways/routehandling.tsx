import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { bodyOf, flagsOf, type Handling, handlingOf, type Kind, wordsOf } from '../../lib/handling';
import { Button, Panel } from '../../ui/basic';
import { AreaField, CheckField, SelectField, TextField } from '../../ui/form';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];

// RouteHandling shows what a route does with its requests: forwards them, perhaps without a prefix of their path, redirects or
// responds by itself. It changes that.
export function RouteHandling({ first }: { first: Answer<Route> }) {
  const [editing, setEditing] = useState(false);
  const refused = useRefusal('write', `gateways/${first.data.gateway_id}/routes`);
  return (
    <Panel
      title="Forwarding"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change forwarding
        </Button>
      }>
      <p className="break-words">{wordsOf(first.data)}</p>
      {editing && <HandlingEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

function HandlingEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const form = useRouteEdit<Handling>({ first, valuesOf: handlingOf, labels: { kind: 'What is done with requests' } });
  const v = form.values;
  return (
    <RouteDialog
      title="Forwarding of the route"
      route={first.data}
      form={form}
      body={bodyOf(v)}
      flags={flagsOf(v)}
      done="What the route does with its requests is changed"
      onClose={onClose}>
      <SelectField
        label="Requests"
        value={v.kind}
        onChange={(kind) => form.set('kind', kind as Kind)}
        options={[
          { value: 'forward', label: 'Are forwarded' },
          { value: 'redirect', label: 'Get a redirect' },
          { value: 'respond', label: 'Get a fixed response' },
        ]}
      />
      {v.kind === 'forward' && (
        <TextField
          label="Prefix to cut off"
          hint="Whole segments with which the path of the route begins. The service does not get them."
          placeholder="/api"
          mono
          value={v.prefix}
          onChange={(text) => form.set('prefix', text)}
          error={form.fieldError('strip_prefix')}
        />
      )}
      {v.kind === 'redirect' && (
        <>
          <TextField
            label="To"
            hint="A URL, or a path. It has no variables."
            placeholder="https://example.com"
            mono
            value={v.to}
            onChange={(text) => form.set('to', text)}
            error={form.fieldError('redirect.to') ?? form.fieldError('redirect')}
          />
          <SelectField
            label="Status"
            value={v.status}
            onChange={(status) => form.set('status', status)}
            error={form.fieldError('redirect.status')}
            options={['301', '302', '307', '308'].map((s) => ({ value: s, label: s }))}
          />
          <CheckField label="Append the path of the request" checked={v.keepPath} onChange={(on) => form.set('keepPath', on)} />
          <CheckField label="Append the query of the request" checked={v.keepQuery} onChange={(on) => form.set('keepQuery', on)} />
        </>
      )}
      {v.kind === 'respond' && (
        <>
          <TextField
            label="Status"
            placeholder="410"
            value={v.status}
            onChange={(status) => form.set('status', status)}
            error={form.fieldError('respond.status')}
          />
          <TextField
            label="Content type"
            placeholder="application/json"
            mono
            value={v.contentType}
            onChange={(text) => form.set('contentType', text)}
            error={form.fieldError('respond.content_type')}
          />
          <AreaField
            label="Body"
            rows={5}
            value={v.body}
            onChange={(text) => form.set('body', text)}
            error={form.fieldError('respond.body')}
          />
          <AreaField
            label="Headers"
            hint="One in a line."
            placeholder="Cache-Control: no-store"
            rows={3}
            value={v.headers}
            onChange={(text) => form.set('headers', text)}
            error={form.fieldError('respond.headers')}
          />
        </>
      )}
    </RouteDialog>
  );
}
