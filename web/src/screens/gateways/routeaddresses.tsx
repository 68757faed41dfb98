import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { addressesOf, addressWords, listsOf } from '../../lib/addresses';
import { AddressFields, networkFlags } from '../../ui/addresses';
import { Button, Panel } from '../../ui/basic';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];

// RouteAddresses shows the networks whose addresses may use a route, and changes them.
export function RouteAddresses({ first }: { first: Answer<Route> }) {
  const [editing, setEditing] = useState(false);
  const refused = useRefusal('write', `gateways/${first.data.gateway_id}/routes`);
  return (
    <Panel
      title="Addresses"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change addresses
        </Button>
      }>
      <p className="break-words">{addressWords(first.data)}</p>
      {editing && <AddressEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const labels = { allow_ips: 'Allowed addresses', deny_ips: 'Denied addresses' };

function AddressEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const form = useRouteEdit({ first, valuesOf: addressesOf, labels });
  const v = form.values;
  return (
    <RouteDialog
      title="Addresses of the route"
      route={first.data}
      form={form}
      body={listsOf(v)}
      flags={[...networkFlags('allow-ip', v.allow_ips), ...networkFlags('deny-ip', v.deny_ips)].join(' ')}
      done="Who may use the route is changed"
      onClose={onClose}>
      <AddressFields
        allow={v.allow_ips}
        deny={v.deny_ips}
        onAllow={(t) => form.set('allow_ips', t)}
        onDeny={(t) => form.set('deny_ips', t)}
        errorOf={(f) => form.errorAt((e) => e === f || e.startsWith(`${f}[`))}
      />
    </RouteDialog>
  );
}
