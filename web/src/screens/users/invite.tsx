import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { Failure } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { SecretDialog } from '../../ui/secret';
import { type Role, RoleField } from './parts';

// InviteUser asks whom to invite, and then shows the link the one time.
export function InviteUser({ onClose }: { onClose: () => void }) {
  const form = useForm({ email: '', role: 'viewer' as Role });
  const [made, setMade] = useState<Schemas['NewInvitation'] | null>(null);
  const body = { email: form.values.email.trim(), role: form.values.role };
  if (made) {
    const close = () => {
      setMade(null);
      onClose();
    };
    if (!made.link)
      return (
        <Dialog title="The user is invited" onClose={close}>
          <Failure error={new Error(made.message ?? 'The response has no link. Delete the invitation, and create another.')} />
        </Dialog>
      );
    return (
      <SecretDialog title="The user is invited" what="link" secret={made.link} onClose={close}>
        <p className="break-words">
          Send it to <b>{made.email}</b>. It works once, within 72 hours, and only for somebody whom the identity provider knows by this
          email. Keygate sends no mail.
        </p>
      </SecretDialog>
    );
  }
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/users/invitations', { body });
      setMade(data);
      void changed('/v1/users');
    });
  return (
    <FormDialog
      title="Invite a user"
      form={form}
      submit={submit}
      command={{
        cli: `keygate users invite ${quote(body.email || 'EMAIL')} --role ${body.role}`,
        method: 'POST',
        path: '/v1/users/invitations',
        body,
      }}
      label="Create the invitation"
      onClose={onClose}>
      <TextField
        label="Email"
        required
        inputMode="email"
        placeholder="ada@example.com"
        value={form.values.email}
        onChange={(t) => form.set('email', t)}
        error={form.fieldError('email')}
        hint="The identity provider must have verified it."
      />
      <RoleField value={form.values.role} onChange={(r) => form.set('role', r)} error={form.fieldError('role')} />
    </FormDialog>
  );
}
