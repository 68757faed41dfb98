import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { PlanField } from '../../ui/planselect';
import { toast } from '../../ui/toast';
import { FormDialog } from '../../ui/formdialog';

// DefaultPlan changes the plan that new owners get.
export function DefaultPlan({ now, onClose }: { now: string | null; onClose: () => void }) {
  const form = useForm({ plan: now ?? '' });
  const { plan } = form.values;
  const body = { default_plan: plan || null };
  const submit = () =>
    form.submit(async () => {
      await api.patch('/v1/account', { body });
      toast(plan ? `New owners get the plan “${plan}”` : 'New owners get no plan');
      await changed('/v1/account');
      onClose();
    });
  return (
    <FormDialog
      title="Plan of new owners"
      form={form}
      submit={() => {
        if (form.dirty) void submit();
      }}
      command={{ cli: `keygate account update --default-plan ${plan || "''"}`, method: 'PATCH', path: '/v1/account', body }}
      unchanged={!form.dirty}
      onClose={onClose}>
      <PlanField
        none="None"
        value={plan}
        onChange={(t) => form.set('plan', t)}
        error={form.fieldError('default_plan')}
        hint="An owner that a key names for the first time gets it. Owners that exist keep theirs."
      />
    </FormDialog>
  );
}
