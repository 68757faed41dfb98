import { useState } from 'react';
import type { Answer, Schemas } from '../../api/client';
import { useRefusal } from '../../api/session';
import { flagsOf, type SplitEntry, splitOf, textOf } from '../../lib/split';
import { Button, Panel } from '../../ui/basic';
import { AreaField, SelectField } from '../../ui/form';
import { SplitWords } from '../../ui/split';
import { CanaryNotice } from '../canaries/state';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];
type Kind = 'gateway' | 'none' | 'own';

// RouteSplit shows which requests of a route go to another upstream, and changes that. inherited is the split of the gateway.
export function RouteSplit({ first, inherited }: { first: Answer<Route>; inherited?: SplitEntry[] }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, route_id, split, upstream } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  const inForce = split ?? inherited ?? [];
  return (
    <Panel
      title="Split"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Change the split
        </Button>
      }>
      {inForce.length === 0 ? (
        <p className="break-words">All requests go to {upstream}.</p>
      ) : (
        <SplitWords split={splitOf(textOf(inForce))} upstream={upstream} />
      )}
      {split === null && inForce.length > 0 && <p className="mt-2 text-muted text-sm">This is the split of the gateway.</p>}
      <div className="mt-2 empty:hidden">
        <CanaryNotice gatewayId={gateway_id} concerns={(c) => c.routes.includes(route_id)}>
          it decides where requests to this route go, and no split can be given until it has ended.
        </CanaryNotice>
      </div>
      {editing && <SplitEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const kindOf = (split: Route['split']): Kind => (split === null ? 'gateway' : split.length === 0 ? 'none' : 'own');
const valuesOf = ({ split }: Route) => ({ kind: kindOf(split), entries: textOf(split ?? []) });

function SplitEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const form = useRouteEdit({ first, valuesOf, labels: { kind: 'The kind of split', entries: 'The split' } });
  const { kind, entries } = form.values;
  const split = { gateway: null, none: [], own: splitOf(entries) }[kind];
  const flags = { gateway: ["--split ''"], none: ['--split none'], own: flagsOf(entries) }[kind];
  return (
    <RouteDialog
      title="Split of the route"
      route={first.data}
      form={form}
      body={{ split }}
      flags={flags.join(' ')}
      done="The split of the route is changed"
      onClose={onClose}>
      <SelectField
        label="Which split"
        value={kind}
        onChange={(k) => form.set('kind', k as Kind)}
        options={[
          { value: 'gateway', label: 'That of the gateway' },
          { value: 'none', label: 'None' },
          { value: 'own', label: 'One of its own' },
        ]}
      />
      {kind === 'own' && (
        <AreaField
          label="Split"
          hint="One entry in a line. The first condition that holds decides, else the percentage. A header is the caller's choice: it is no access control."
          placeholder={'next:header:X-Beta=1\nnext=5%'}
          rows={4}
          value={entries}
          onChange={(text) => form.set('entries', text)}
          error={form.fieldError('split')}
        />
      )}
      {kind === 'own' && <SplitWords split={splitOf(entries)} upstream={first.data.upstream} />}
    </RouteDialog>
  );
}
