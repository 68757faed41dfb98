import { useState } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { count } from '../../lib/format';
import { anyInFlight, inFlightFlag, inFlightText, inFlightValue } from '../../lib/limit';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Button, Panel } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Dialog } from '../../ui/dialog';
import { Submit } from '../../ui/form';
import { InFlightFields } from '../../ui/limit';
import { toast } from '../../ui/toast';

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
  const { gateway_id, route_id } = first.data;
  const id = { gateway_id, route_id };
  const form = useEdit({
    first,
    valuesOf,
    labels: { concurrency: 'The limit' },
    show: (c) => inFlightFlag(c) || 'none',
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id }),
    othersKept: true,
  });
  const value = form.values.concurrency;
  const body = { concurrency: inFlightValue(value) };
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async () => {
        toast(body.concurrency === null ? 'The limit was removed' : 'The limit was saved');
        await changed('/v1/gateways');
        onClose();
      },
    });
  return (
    <Dialog title="Requests in flight of the route" onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}>
        {form.conflict && <Conflict {...form.conflict} />}
        <InFlightFields value={value} onChange={(c) => form.set('concurrency', c)} error={form.fieldError('concurrency')} />
        {value.max && (
          <div>
            <Button size="sm" kind="quiet" onClick={() => form.set('concurrency', anyInFlight)}>
              Remove the limit
            </Button>
          </div>
        )}
        <Submit
          beside={
            <AsCode
              command={{
                cli: `keygate routes update --gateway ${gateway_id} ${route_id} --concurrency ${quote(inFlightFlag(value))}`,
                method: 'PATCH',
                path: `/v1/gateways/${gateway_id}/routes/${route_id}`,
                body,
              }}
              why={form.dirty ? null : 'Nothing has been changed yet.'}
            />
          }
          label="Save"
          busy={form.busy}
          error={form.rest}
          unchanged={!form.dirty}
          disabled={form.conflict !== null}
          onCancel={onClose}
        />
      </form>
    </Dialog>
  );
}
