import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { Button, Panel } from '../../ui/basic';
import { SelectField } from '../../ui/form';
import { CanaryNotice } from '../canaries/state';
import { RouteDialog, useRouteEdit } from './routedialog';

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
  const form = useRouteEdit({ first, valuesOf, labels: { upstream: 'The upstream' } });
  const { upstream } = form.values;
  return (
    <RouteDialog
      title="Upstream of the route"
      route={first.data}
      form={form}
      body={{ upstream }}
      flags={`--upstream ${upstream}`}
      done={`Requests go to the upstream “${upstream}”`}
      onClose={onClose}>
      <CanaryNotice gatewayId={first.data.gateway_id} concerns={(c) => c.state === 'running' && c.routes.includes(first.data.route_id)}>
        a change of this route pauses it.
      </CanaryNotice>
      <UpstreamSelect names={names} value={upstream} onChange={(u) => form.set('upstream', u)} error={form.fieldError('upstream')} />
    </RouteDialog>
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
