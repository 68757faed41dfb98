import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { type Rules, ruleBody, ruleFlags, rulesOf, ruleWords } from '../../lib/headers';
import { Button, Panel } from '../../ui/basic';
import { AreaField, TextField } from '../../ui/form';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];

// RouteHeaders shows which headers a route sets and removes, beside those of the gateway, and changes that.
export function RouteHeaders({ first }: { first: Answer<Route> }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, request_headers, response_headers } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  const words = [ruleWords('requests', request_headers), ruleWords('responses', response_headers)].filter(Boolean);
  return (
    <Panel
      title="Headers"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change headers
        </Button>
      }>
      {words.length === 0 && <p>Only the gateway sets and removes headers.</p>}
      {words.map((w) => (
        <p key={w} className="break-words">
          {w}
        </p>
      ))}
      {editing && <HeadersEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const valuesOf = (r: Route) => ({ request_headers: rulesOf(r.request_headers), response_headers: rulesOf(r.response_headers) });

function HeadersEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const form = useRouteEdit({
    first,
    valuesOf,
    labels: { request_headers: 'The headers of requests', response_headers: 'The headers of responses' },
    show: ({ set, remove }) =>
      [...set.split('\n'), ...remove.split(',').map((n) => n.trim() && `-${n.trim()}`)].filter(Boolean).join(', ') || 'none',
  });
  const { request_headers, response_headers } = form.values;
  return (
    <RouteDialog
      title="Headers of the route"
      route={first.data}
      form={form}
      body={{ request_headers: ruleBody(request_headers), response_headers: ruleBody(response_headers) }}
      flags={[...ruleFlags('request-header', request_headers), ...ruleFlags('response-header', response_headers)].join(' ')}
      done="The headers of the route are changed"
      onClose={onClose}>
      <RulesFields
        of="requests"
        placeholder="X-Real-IP: ${client_ip}"
        rules={request_headers}
        onChange={(r) => form.set('request_headers', r)}
        errorOf={(part) => form.errorAt((e) => belongs(e, 'request_headers', part))}
      />
      <RulesFields
        of="responses"
        placeholder="Cache-Control: no-store"
        rules={response_headers}
        onChange={(r) => form.set('response_headers', r)}
        errorOf={(part) => form.errorAt((e) => belongs(e, 'response_headers', part))}
      />
    </RouteDialog>
  );
}

// belongs reports whether an error is shown at a part of rules. One of the rules as a whole is shown at the first.
const belongs = (error: string, name: string, part: keyof Rules) =>
  error === `${name}.${part}` ||
  error.startsWith(`${name}.${part}.`) ||
  error.startsWith(`${name}.${part}[`) ||
  (error === name && part === 'set');

function RulesFields({
  of,
  placeholder,
  rules,
  onChange,
  errorOf,
}: {
  of: string;
  placeholder: string;
  rules: Rules;
  onChange: (r: Rules) => void;
  errorOf: (part: keyof Rules) => string | undefined;
}) {
  return (
    <>
      <AreaField
        label={`Set on ${of}`}
        hint="One “Name: value” in a line, in place of what the gateway does with it. ${request_id}, ${key_id}, ${owner}, ${subject}, ${client_ip} and ${gateway_id} are variables. Everyone who may read the route sees the values."
        placeholder={placeholder}
        rows={3}
        value={rules.set}
        onChange={(set) => onChange({ ...rules, set })}
        error={errorOf('set')}
      />
      <TextField
        label={`Removed from ${of}`}
        hint="Names, separated by commas."
        placeholder="X-Debug"
        optional
        mono
        value={rules.remove}
        onChange={(remove) => onChange({ ...rules, remove })}
        error={errorOf('remove')}
      />
    </>
  );
}
