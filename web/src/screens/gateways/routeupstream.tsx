import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { AsCode } from '../../ui/ascode';
import { Button, Panel } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Dialog } from '../../ui/dialog';
import { SelectField, Submit } from '../../ui/form';
import { toast } from '../../ui/toast';

type Route = Schemas['Route'];

// RouteUpstream shows which upstream gets the requests of a route, and changes that. names are those that there are.
export function RouteUpstream({ first, names }: { first: Answer<Route>; names: string[] }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, upstream } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  return (
    <Panel
      title="Upstream"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change the upstream
        </Button>
      }>
      <p>
        Its requests go to{' '}
        <Link
          to="/gateways/$gatewayId/upstreams/$upstream"
          params={{ gatewayId: gateway_id, upstream }}
          className="link font-mono break-all">
          {upstream}
        </Link>
        .
      </p>
      {editing && <UpstreamEditor first={first} names={names} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const valuesOf = ({ upstream }: Route) => ({ upstream });

function UpstreamEditor({ first, names, onClose }: { first: Answer<Route>; names: string[]; onClose: () => void }) {
  const { gateway_id, route_id } = first.data;
  const id = { gateway_id, route_id };
  const form = useEdit({
    first,
    valuesOf,
    labels: { upstream: 'The upstream' },
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id }),
    othersKept: true,
  });
  const { upstream } = form.values;
  const body = { upstream };
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async () => {
        toast(`Requests go to the upstream “${upstream}”`);
        await changed('/v1/gateways');
        onClose();
      },
    });
  return (
    <Dialog title="Upstream of the route" onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}>
        {form.conflict && <Conflict {...form.conflict} />}
        <UpstreamSelect names={names} value={upstream} onChange={(u) => form.set('upstream', u)} error={form.fieldError('upstream')} />
        <Submit
          beside={
            <AsCode
              command={{
                cli: `keygate routes update --gateway ${gateway_id} ${route_id} --upstream ${upstream}`,
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

// UpstreamSelect chooses one of the upstreams of a gateway, whose names begin with default.
export function UpstreamSelect({
  names,
  value,
  onChange,
  error,
}: {
  names: string[];
  value: string;
  onChange: (value: string) => void;
  error?: string;
}) {
  const options = (names.includes(value) ? names : [...names, value]).map((n) => ({ value: n, label: n }));
  return <SelectField label="Upstream" hint="It gets the requests" value={value} onChange={onChange} error={error} options={options} />;
}
