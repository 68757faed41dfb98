import { useState } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { stringify } from '../../api/json';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { costErrors, costOf, costProblem, costRows, costText, tokensOfOpenAI } from '../../lib/cost';
import { useEdit } from '../../lib/edit';
import { Button, Details, Panel } from '../../ui/basic';
import { AreaField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { toast } from '../../ui/toast';

type Route = Schemas['Route'];

// RouteCost shows what requests of a route cost, and edits it.
export function RouteCost({ first }: { first: Answer<Route> }) {
  const [editing, setEditing] = useState(false);
  const { gateway_id, cost } = first.data;
  const refused = useRefusal('write', `gateways/${gateway_id}/routes`);
  return (
    <Panel
      title="Cost"
      actions={
        <Button size="sm" why={refused} onClick={() => setEditing(true)}>
          Edit the cost
        </Button>
      }>
      {cost?.length ? (
        <ul aria-label="Costs of the route" className="flex flex-col divide-y divide-line">
          {cost.map((c) => (
            <li key={c.meter} className="flex flex-col gap-2 py-3 first:pt-0 last:pb-0">
              <code className="font-mono text-sm font-medium">{c.meter}</code>
              <Details rows={costRows(c)} />
            </li>
          ))}
        </ul>
      ) : (
        <p className="text-muted">
          Each request costs 1 of the meter requests. With a cost, plans can limit tokens, or anything else that responses count.
        </p>
      )}
      {editing && <CostEditor first={first} onClose={() => setEditing(false)} />}
    </Panel>
  );
}

const valuesOf = (r: Route) => ({ cost: costText(r.cost) });

// CostEditor edits the costs of a route as JSON. They are sent as a whole.
function CostEditor({ first, onClose }: { first: Answer<Route>; onClose: () => void }) {
  const { gateway_id, route_id } = first.data;
  const id = { gateway_id, route_id };
  const form = useEdit({
    first,
    valuesOf,
    labels: { cost: 'The cost' },
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id }),
    othersKept: true,
  });
  const text = form.values.cost;
  const problem = costProblem(text);
  const body = problem ? null : { cost: costOf(text) };
  const found = form.errorsAt((f) => /^cost(?![^.[])/.test(f));
  const submit = () => {
    if (!body) return;
    void form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async () => {
        toast(body.cost === null ? 'The cost was removed' : 'The cost was saved');
        await changed('/v1/gateways');
        onClose();
      },
    });
  };
  return (
    <FormDialog
      title="Cost of the route"
      wide
      form={form}
      submit={submit}
      command={{
        cli: `keygate routes update --gateway ${gateway_id} ${route_id} ${body?.cost ? `--cost - <<'EOF'\n${stringify(body.cost, 2)}\nEOF` : "--cost ''"}`,
        method: 'PATCH',
        path: `/v1/gateways/${gateway_id}/routes/${route_id}`,
        body,
      }}
      problem={problem}
      onClose={onClose}>
      <AreaField
        label={<>Cost</>} // not a string, which errors would begin with: they name their field
        rows={16}
        value={text}
        onChange={(t) => form.set('cost', t)}
        error={problem ?? costErrors(found)}
        placeholder='[{"meter": "requests", "from": {"request": 20}}]'
        hint="A list in JSON of at most 4 costs, one for each meter. Empty for none: then a request costs 1 of the meter requests."
      />
      <div className="flex flex-wrap gap-2">
        <Button size="sm" onClick={() => form.set('cost', stringify(tokensOfOpenAI, 2))}>
          Tokens of an OpenAI-compatible model
        </Button>
        {text && (
          <Button size="sm" kind="quiet" onClick={() => form.set('cost', '')}>
            Remove the cost
          </Button>
        )}
      </div>
    </FormDialog>
  );
}
