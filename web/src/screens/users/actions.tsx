import { useNavigate } from '@tanstack/react-router';
import { type Answer, api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useEdit } from '../../lib/edit';
import { AsCode } from '../../ui/ascode';
import { ConfirmDialog } from '../../ui/dialog';
import { FormDialog } from '../../ui/formdialog';
import { toast } from '../../ui/toast';
import { labelOf, type Role, RoleField, roles, type User } from './parts';

interface Props {
  record: User;
  onClose: () => void;
}

const pathOf = (u: User) => `/v1/users/${u.user_id}`;

const Named = ({ record }: { record: User }) => (
  <b>
    <bdi>{labelOf(record)}</bdi>
  </b>
);

// ChangeRole gives a user another role.
export function ChangeRole({ first, onClose }: { first: Answer<User>; onClose: () => void }) {
  const u = first.data;
  const path = { user_id: u.user_id };
  const form = useEdit({
    first,
    valuesOf: (r: User) => ({ role: r.role as string }),
    labels: { role: 'Role' },
    show: (v: string) => roles[v as Role].label,
    read: () => api.get('/v1/users/{user_id}', { path }) as Promise<Answer<User>>,
  });
  const role = form.values.role as Role;
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/users/{user_id}', { path, body: { role }, ifMatch }) as Promise<Answer<User>>,
      saved: async () => {
        toast(`The role of “${labelOf(u)}” is changed`);
        await changed('/v1/users', '/v1/account');
        onClose();
      },
    });
  return (
    <FormDialog
      title={`Role of “${labelOf(u)}”`}
      form={form}
      submit={submit}
      command={{ cli: `keygate users update ${u.user_id} --role ${role}`, method: 'PATCH', path: pathOf(u), body: { role } }}
      label="Change the role"
      onClose={onClose}>
      <RoleField value={role} onChange={(r) => form.set('role', r)} error={form.fieldError('role')} />
      <p className="text-sm text-muted">
        It counts from the next call of the user on, on every node. If the server maps a claim of the identity provider to roles, the next
        sign-in sets it again.
      </p>
    </FormDialog>
  );
}

// setState suspends or resumes a user.
async function setState(record: User, state: User['state']) {
  await api.patch('/v1/users/{user_id}', { path: { user_id: record.user_id }, body: { state } });
  toast(`User “${labelOf(record)}” is ${state === 'active' ? 'active again' : 'suspended'}`);
  await changed('/v1/users');
}

const stateCommand = (u: User, state: User['state']) => ({
  cli: `keygate users update ${u.user_id} --state ${state}`,
  method: 'PATCH',
  path: pathOf(u),
  body: { state },
});

// SuspendUser says what suspending does before it is done.
export function SuspendUser({ record, onClose }: Props) {
  return (
    <ConfirmDialog title="Suspend the user" action="Suspend the user" onClose={onClose} run={() => setState(record, 'suspended')}>
      <p>
        From the moment this succeeds the sessions of <Named record={record} /> have ended, on every node, and the user cannot sign in.
      </p>
      <p>Keys that the user has created stay as they are.</p>
      <div>
        <AsCode command={stateCommand(record, 'suspended')} />
      </div>
    </ConfirmDialog>
  );
}

// ResumeUser lets a user sign in again.
export function ResumeUser({ record, onClose }: Props) {
  return (
    <ConfirmDialog harmless title="Resume the user" action="Resume the user" onClose={onClose} run={() => setState(record, 'active')}>
      <p>
        <Named record={record} /> can sign in again, with the role {roles[record.role].label.toLowerCase()} or that which the identity
        provider gives.
      </p>
      <div>
        <AsCode command={stateCommand(record, 'active')} />
      </div>
    </ConfirmDialog>
  );
}

// DeleteUser deletes a user, who stays barred.
export function DeleteUser({ record, onClose }: Props) {
  const navigate = useNavigate();
  const run = async () => {
    await api.delete('/v1/users/{user_id}', { path: { user_id: record.user_id } });
    toast(`User “${labelOf(record)}” is deleted`);
    await navigate({ to: '/users' });
    await changed('/v1/users');
  };
  return (
    <ConfirmDialog title="Delete the user" action="Delete the user" onClose={onClose} run={run}>
      <p>
        The sessions of <Named record={record} /> end, and the user stays barred until somebody invites it again, whatever role the identity
        provider gives it.
      </p>
      <p>Keys that the user has created stay as they are.</p>
      <div>
        <AsCode command={{ cli: `keygate users delete ${record.user_id} --yes`, method: 'DELETE', path: pathOf(record) }} />
      </div>
    </ConfirmDialog>
  );
}
