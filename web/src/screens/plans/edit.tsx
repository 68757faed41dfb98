import { useNavigate, useParams } from '@tanstack/react-router';
import { type Answer, api } from '../../api/client';
import { useGateways } from '../../api/gateways';
import { changed, useRecord, warn } from '../../api/hooks';
import type { Plan } from '../../api/plans';
import { useRefusal } from '../../api/session';
import { calendarChanges, calendarFlags, calendarText } from '../../lib/calendar';
import { useEdit } from '../../lib/edit';
import { draftOf, limitBody, limitFlags, planFile } from '../../lib/plan';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Failure, Page, Panel, Skeleton } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { toast } from '../../ui/toast';
import { PlanFields, type PlanValues } from './form';

export default function EditPlan() {
  const { planId } = useParams({ from: '/plans/$planId/edit' });
  const query = useRecord('/v1/plans/{plan_id}', { path: { plan_id: planId } });
  if (query.data) return <PlanForm key={planId} first={query.data} />;
  return (
    <Page title="Edit a plan">
      {query.error ? (
        <Failure error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Panel>
          <Skeleton className="h-96 w-full" />
        </Panel>
      )}
    </Page>
  );
}

const valuesOf = (p: Plan): PlanValues => ({ name: p.name, title: p.title ?? '', limits: p.limits.map(draftOf), ...calendarText(p) });
const labels = { name: 'Name', title: 'Title', limits: 'Limits', time_zone: 'Time zone', anchor_day: 'Months begin on day' };
const show = (value: unknown): string =>
  Array.isArray(value) ? limitFlags(value.map(limitBody)).join(' ').replaceAll('--limit ', '') || 'none' : String(value) || 'empty';

// PlanForm sends the fields that were touched, with the ETag of the record that it began with.
function PlanForm({ first }: { first: Answer<Plan> }) {
  const { plan_id } = first.data;
  const path = { plan_id };
  const navigate = useNavigate();
  const refused = useRefusal('write', `plans/${plan_id}`);
  const { nameOf } = useGateways();
  const form = useEdit<Plan, PlanValues>({ first, valuesOf, labels, show, read: () => api.get('/v1/plans/{plan_id}', { path }) });
  const { name, title } = form.values;
  const limits = form.values.limits.map(limitBody);
  const calendar = calendarChanges(form.changes);
  const body = {
    ...('name' in form.changes && { name: name.trim() }),
    ...('title' in form.changes && { title: title.trim() || null }),
    ...('limits' in form.changes && { limits }),
    ...calendar,
  };
  const leave = () => navigate({ to: '/plans/$planId', params: { planId: plan_id } });
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/plans/{plan_id}', { path, body, ifMatch }),
      saved: async ({ data }) => {
        warn(plan_id, data.warnings);
        toast(`Plan “${data.name}” was saved`);
        await changed('/v1/plans', '/v1/keys', '/v1/owners', '/v1/gateways');
        await leave();
      },
    });
  const cli = [
    `keygate plans update ${quote(form.base.name)}`,
    'name' in body && `--name ${quote(name)}`,
    'title' in body && `--title ${quote(title)}`,
    ...('limits' in body ? (limits.length > 0 ? limitFlags(limits) : ["--limit ''"]) : []),
    ...calendarFlags(calendar),
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <Page title={`Edit “${form.base.name}”`}>
      <Form onSubmit={submit}>
        <PlanFields form={form} />
        <SubmitBar>
          {form.conflict && <Conflict {...form.conflict} />}
          <Submit
            label="Save"
            busy={form.busy}
            error={form.rest}
            unchanged={!form.dirty}
            why={refused}
            disabled={form.conflict !== null}
            onCancel={() => void leave()}
            beside={
              <AsCode
                command={{ cli, method: 'PATCH', path: `/v1/plans/${plan_id}`, body, file: planFile(form.values, limits, nameOf) }}
                why={form.dirty ? null : 'Nothing has been changed yet.'}
              />
            }
          />
        </SubmitBar>
      </Form>
    </Page>
  );
}
