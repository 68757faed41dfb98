import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { useForm } from '../../lib/form';
import { Status } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { Form, SelectField, Submit, TextField } from '../../ui/form';
import { GatewayField } from '../../ui/gatewayselect';

const reasons: Record<string, string> = {
  key_invalid: 'There is no such key here, it was revoked, or it belongs to another gateway.',
  key_expired: 'The key has expired.',
  owner_suspended: 'The owner of the key is suspended.',
  scope_insufficient: 'The key is valid, but its scope does not allow this request.',
};

// VerifyKey says whether a key would be let in. The key is gone when the dialog closes.
export function VerifyKey({ onClose }: { onClose: () => void }) {
  const form = useForm({ key: '', gateway_id: '', method: 'GET', path: '' });
  const [answer, setAnswer] = useState<Schemas['Verification'] | null>(null);
  const v = form.values;
  const submit = () =>
    form.submit(async () => {
      setAnswer(null);
      const { data } = await api.post('/v1/keys/verify', {
        body: { key: v.key.trim(), ...(v.gateway_id && { gateway_id: v.gateway_id }), ...(v.path && { method: v.method, path: v.path }) },
      });
      setAnswer(data);
    });
  return (
    <Dialog title="Check a key" onClose={onClose}>
      <Form onSubmit={submit}>
        <TextField
          label="Key"
          type="password"
          mono
          autoFocus
          required
          value={v.key}
          onChange={(t) => form.set('key', t)}
          error={form.fieldError('key')}
          placeholder="kg_…"
          hint="Nothing is charged, and the key is not kept."
        />
        <GatewayField optional value={v.gateway_id} none="Any" onChange={(t) => form.set('gateway_id', t)} />
        <div className="grid grid-cols-[7rem_1fr] gap-2">
          <SelectField
            label="Method"
            value={v.method}
            onChange={(t) => form.set('method', t)}
            options={['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].map((m) => ({ value: m, label: m }))}
          />
          <TextField
            label="Path"
            optional
            mono
            value={v.path}
            onChange={(t) => form.set('path', t)}
            error={form.fieldError('path')}
            placeholder="/orders/17"
          />
        </div>
        <Submit label="Check" busy={form.busy} error={form.rest} />
        <div role="status">
          {answer && (
            <div className="flex flex-col gap-2 rounded-md border border-line p-3">
              {answer.valid ? <Status tone="ok">Would be let in</Status> : <Status tone="bad">Would be refused</Status>}
              {answer.code && <p>{reasons[answer.code]}</p>}
              {answer.key_id && (
                <p>
                  <Link to="/keys/$keyId" params={{ keyId: answer.key_id }} className="link">
                    Open the key
                  </Link>{' '}
                  <span className="text-muted">{[answer.state, answer.owner, answer.scope].filter(Boolean).join(' · ')}</span>
                </p>
              )}
            </div>
          )}
        </div>
      </Form>
    </Dialog>
  );
}
