import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { count } from '../../lib/format';
import { anyInFlight, inFlightFlag, inFlightText, inFlightValue } from '../../lib/limit';
import { quote } from '../../lib/shell';
import { Button, Panel } from '../../ui/basic';
import { InFlightFields } from '../../ui/limit';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];

// RouteConcurrency shows how many requests of a route may be in flight, and edits that.
export function RouteConcurrency({ first }: { first: Answer<Route> }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, concurrency } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  return (
    <Panel
      title="Requests in flight"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Edit this limit
        </Button>
      }>
      {concurrency ? (
        <p>
          At most <b>{count(concurrency.max)}</b> at once,{' '}
          {concurrency.per === 'key' ? 'of each key on its own' : 'of all callers together'}.
        </p>
      ) : (
        <p className="text-muted">Any number of requests may be in flight at once. A limit protects a service that is slow.</p>
      )}
      {editing && <ConcurrencyEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

// A limit is one field: it is sent as a whole.
const valuesOf = (r: Route) => ({ concurrency: inFlightText(r.concurrency) });

// ConcurrencyEditor edits how many requests of a route may be in flight.
function ConcurrencyEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const form = useRouteEdit({ first, valuesOf, labels: { concurrency: 'The limit' }, show: (c) => inFlightFlag(c) || 'none' });
  const value = form.values.concurrency;
  const concurrency = inFlightValue(value);
  return (
    <RouteDialog
      title="Requests in flight of the route"
      route={first.data}
      form={form}
      body={{ concurrency }}
      flags={`--concurrency ${quote(inFlightFlag(value))}`}
      done={concurrency === null ? 'The limit was removed' : 'The limit was saved'}
      onClose={onClose}>
      <InFlightFields value={value} onChange={(c) => form.set('concurrency', c)} error={form.fieldError('concurrency')} />
      {value.max && (
        <div>
          <Button size="sm" kind="quiet" onClick={() => form.set('concurrency', anyInFlight)}>
            Remove the limit
          </Button>
        </div>
      )}
    </RouteDialog>
  );
}
