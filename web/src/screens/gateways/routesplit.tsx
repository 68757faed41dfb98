import { useState } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { flagsOf, type SplitEntry, splitOf, textOf } from '../../lib/split';
import { AsCode } from '../../ui/ascode';
import { Button, Panel } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Dialog } from '../../ui/dialog';
import { AreaField, SelectField, Submit } from '../../ui/form';
import { SplitWords } from '../../ui/split';
import { toast } from '../../ui/toast';

type Route = Schemas['Route'];
type Kind = 'gateway' | 'none' | 'own';

// RouteSplit shows which requests of a route go to another upstream, and changes that. inherited is the split of the gateway.
export function RouteSplit({ first, inherited }: { first: Answer<Route>; inherited?: SplitEntry[] }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, split, upstream } = first.data;
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
      {editing && <SplitEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const kindOf = (split: Route['split']): Kind => (split === null ? 'gateway' : split.length === 0 ? 'none' : 'own');
const valuesOf = ({ split }: Route) => ({ kind: kindOf(split), entries: textOf(split ?? []) });

function SplitEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const { gateway_id, route_id, upstream } = first.data;
  const id = { gateway_id, route_id };
  const form = useEdit({
    first,
    valuesOf,
    labels: { kind: 'The kind of split', entries: 'The split' },
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id }),
    othersKept: true,
  });
  const { kind, entries } = form.values;
  const split = { gateway: null, none: [], own: splitOf(entries) }[kind];
  const body = { split } as Schemas['PatchRouteRequest'];
  const flags = { gateway: ["--split ''"], none: ['--split none'], own: flagsOf(entries) }[kind];
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async () => {
        toast('The split of the route is changed');
        await changed('/v1/gateways');
        onClose();
      },
    });
  return (
    <Dialog title="Split of the route" onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}>
        {form.conflict && <Conflict {...form.conflict} />}
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
        {kind === 'own' && <SplitWords split={splitOf(entries)} upstream={upstream} />}
        <Submit
          beside={
            <AsCode
              command={{
                cli: `keygate routes update --gateway ${gateway_id} ${route_id} ${flags.join(' ')}`,
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
