import { useNavigate } from '@tanstack/react-router';
import { api } from '../../api/client';
import { changed, warn } from '../../api/hooks';
import { useGateways } from '../../api/gateways';
import { useRefusal } from '../../api/session';
import { calendarBody, calendarFlags, noCalendar } from '../../lib/calendar';
import { useForm } from '../../lib/form';
import { limitBody, limitFlags, newLimit, planFile } from '../../lib/plan';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Page } from '../../ui/basic';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { toast } from '../../ui/toast';
import { PlanFields, type PlanValues } from './form';

// CreatePlan asks for a plan with one limit at first.
export default function CreatePlan() {
  const navigate = useNavigate();
  const refused = useRefusal('write', 'plans');
  const { nameOf } = useGateways();
  const form = useForm<PlanValues>({ name: '', title: '', limits: [newLimit('per-minute')], ...noCalendar });
  const { name, title } = form.values;
  const limits = form.values.limits.map(limitBody);
  const calendar = calendarBody(form.values);
  const body = { name: name.trim(), ...(title.trim() && { title: title.trim() }), limits, ...calendar };
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/plans', { body });
      warn(data.plan_id, data.warnings);
      toast(`Plan “${data.name}” is created`);
      await changed('/v1/plans');
      await navigate({ to: '/plans/$planId', params: { planId: data.plan_id } });
    });
  const cli = [
    `keygate plans create ${quote(body.name || 'NAME')}`,
    title && `--title ${quote(title)}`,
    ...limitFlags(limits),
    ...calendarFlags(calendar),
  ]
    .filter(Boolean)
    .join(' ');
  return (
    <Page title="Create a plan">
      <Form onSubmit={submit}>
        <PlanFields form={form} />
        <SubmitBar>
          <Submit
            beside={
              <AsCode
                command={{
                  cli,
                  method: 'POST',
                  path: '/v1/plans',
                  body,
                  file: planFile({ ...form.values, name: body.name }, limits, nameOf),
                }}
              />
            }
            label="Create the plan"
            busy={form.busy}
            error={form.rest}
            why={refused}
            onCancel={() => void navigate({ to: '/plans' })}
          />
        </SubmitBar>
      </Form>
    </Page>
  );
}
