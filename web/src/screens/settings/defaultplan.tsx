import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { AsCode } from '../../ui/ascode';
import { Dialog } from '../../ui/dialog';
import { Submit } from '../../ui/form';
import { PlanField } from '../../ui/planselect';
import { toast } from '../../ui/toast';

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
    <Dialog title="Plan of new owners" onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          if (form.dirty) void submit();
        }}>
        <PlanField
          none="None"
          value={plan}
          onChange={(t) => form.set('plan', t)}
          error={form.fieldError('default_plan')}
          hint="An owner that a key names for the first time gets it. Owners that exist keep theirs."
        />
        <Submit
          beside={
            <AsCode
              command={{ cli: `keygate account update --default-plan ${plan || "''"}`, method: 'PATCH', path: '/v1/account', body }}
              why={form.dirty ? null : 'Nothing has been changed yet.'}
            />
          }
          unchanged={!form.dirty}
          label="Save"
          busy={form.busy}
          error={form.rest}
          onCancel={onClose}
        />
      </form>
    </Dialog>
  );
}
