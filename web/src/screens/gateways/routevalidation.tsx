import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { type Mode, modes, modeWords } from '../../lib/validation';
import { Button, Panel } from '../../ui/basic';
import { SelectField } from '../../ui/form';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];

// RouteValidation shows whether the requests of a route are held against the OpenAPI document, and changes that. inherited is the mode of
// the gateway.
export function RouteValidation({ first, inherited }: { first: Answer<Route>; inherited: Mode }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, validate } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  return (
    <Panel
      title="OpenAPI document"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change the mode
        </Button>
      }>
      <p>
        {modeWords[validate ?? inherited]} {validate === null && 'So says the gateway. '}
        <Link to="/gateways/$gatewayId/validation" params={{ gatewayId: gateway_id }} className="link">
          What does not meet it
        </Link>
      </p>
      {editing && <ModeEditor first={first} inherited={inherited} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const valuesOf = (r: Route) => ({ validate: r.validate ?? '' });

function ModeEditor({ first, inherited, onClose }: { first: Answer<Route>; inherited: Mode; onClose: () => void }) {
  const form = useRouteEdit({ first, valuesOf, labels: { validate: 'The mode' }, show: (mode) => mode || 'as the gateway' });
  const { validate } = form.values;
  return (
    <RouteDialog
      title="Requests of the route and the document"
      route={first.data}
      form={form}
      body={{ validate: validate || null }}
      flags={`--validate ${validate || "''"}`}
      done={modeWords[(validate || inherited) as Mode]}
      onClose={onClose}>
      <SelectField
        label="Requests that do not meet it"
        hint="off lets them pass, report counts them, and enforce refuses them."
        value={validate}
        onChange={(mode) => form.set('validate', mode)}
        error={form.fieldError('validate')}
        options={[{ value: '', label: `As the gateway (${inherited})` }, ...modes.map((m) => ({ value: m, label: m }))]}
      />
    </RouteDialog>
  );
}
