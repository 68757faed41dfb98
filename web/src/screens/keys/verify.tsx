import { Link } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { stringify } from '../../api/json';
import { useIssuers } from '../../api/issuers';
import { useForm } from '../../lib/form';
import { decode } from '../../lib/issuer';
import { Code, Details, Status, Time } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { Form, SelectField, Submit, TextField } from '../../ui/form';
import { GatewayField } from '../../ui/gatewayselect';

type Verification = Schemas['Verification'];

const reasons: Record<string, string> = {
  key_invalid: 'There is no such key here, it was revoked, or it belongs to another gateway.',
  key_expired: 'The key has expired.',
  token_invalid: 'The token is not valid here.',
  token_expired: 'The token has expired.',
  owner_suspended: 'Its owner is suspended.',
  scope_insufficient: 'It is valid, but its scope does not allow this request.',
};

// Verify says whether a credential would be let in. The credential is gone when the dialog closes.
function Verify({
  kind,
  placeholder,
  children,
  onClose,
}: {
  kind: 'key' | 'token';
  placeholder: string;
  children: (answer: Verification, credential: string) => ReactNode;
  onClose: () => void;
}) {
  const form = useForm({ credential: '', gateway_id: '', method: 'GET', path: '' });
  const [answer, setAnswer] = useState<{ of: Verification; credential: string } | null>(null);
  const v = form.values;
  const submit = () =>
    form.submit(async () => {
      setAnswer(null);
      const credential = v.credential.trim();
      const { data } = await api.post('/v1/keys/verify', {
        body: { [kind]: credential, ...(v.gateway_id && { gateway_id: v.gateway_id }), ...(v.path && { method: v.method, path: v.path }) },
      });
      setAnswer({ of: data, credential });
    });
  return (
    <Dialog title={`Check a ${kind}`} onClose={onClose}>
      <Form onSubmit={submit}>
        <TextField
          label={{ key: 'Key', token: 'Token' }[kind]}
          type="password"
          mono
          autoFocus
          required
          value={v.credential}
          onChange={(t) => form.set('credential', t)}
          error={form.fieldError(kind)}
          placeholder={placeholder}
          hint={`Nothing is charged, and the ${kind} is not kept.`}
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
              {answer.of.valid ? <Status tone="ok">Would be let in</Status> : <Status tone="bad">Would be refused</Status>}
              {answer.of.code && <p>{reasons[answer.of.code]}</p>}
              {children(answer.of, answer.credential)}
            </div>
          )}
        </div>
      </Form>
    </Dialog>
  );
}

// VerifyKey says whether a key would be let in.
export const VerifyKey = ({ onClose }: { onClose: () => void }) => (
  <Verify kind="key" placeholder="kg_…" onClose={onClose}>
    {(answer) =>
      answer.key_id && (
        <p>
          <Link to="/keys/$keyId" params={{ keyId: answer.key_id }} className="link">
            Open the key
          </Link>{' '}
          <span className="text-muted">{[answer.state, answer.owner, answer.scope].filter(Boolean).join(' · ')}</span>
        </p>
      )
    }
  </Verify>
);

// VerifyToken says whether a token would be let in, whom it identifies, or which check it fails, and what it says of itself.
export function VerifyToken({ onClose }: { onClose: () => void }) {
  const { issuers } = useIssuers();
  const nameOf = (id: string) => issuers.find((i) => i.issuer_id === id)?.name ?? id;
  return (
    <Verify kind="token" placeholder="eyJ…" onClose={onClose}>
      {(answer, token) => (
        <>
          {answer.reason && <p className="break-words">The reason: {answer.reason}.</p>}
          <Details
            rows={[
              ...(answer.issuer_id
                ? [
                    [
                      'Issuer',
                      <Link key="i" to="/issuers/$issuerId" params={{ issuerId: answer.issuer_id }} className="link break-all">
                        {nameOf(answer.issuer_id)}
                      </Link>,
                    ] as [ReactNode, ReactNode],
                  ]
                : []),
              ...(answer.subject ? ([['Subject', <bdi key="s">{answer.subject}</bdi>]] as [ReactNode, ReactNode][]) : []),
              ...(answer.subject ? ([['Owner', answer.owner ?? 'none']] as [ReactNode, ReactNode][]) : []),
              ...(answer.subject ? ([['Scopes', answer.scope || 'none']] as [ReactNode, ReactNode][]) : []),
              ...(answer.plan ? ([['Plan', answer.plan]] as [ReactNode, ReactNode][]) : []),
              ...(answer.expires_at ? ([['Expires', <Time key="t" at={answer.expires_at} />]] as [ReactNode, ReactNode][]) : []),
            ]}
          />
          <Claims token={token} />
        </>
      )}
    </Verify>
  );
}

// Claims shows what a token says, as the browser reads it.
function Claims({ token }: { token: string }) {
  const decoded = decode(token);
  if (!decoded) return null;
  return (
    <details>
      <summary className="cursor-pointer text-muted">What the token says</summary>
      <div className="mt-2 flex flex-col gap-2">
        <Code label="Header" text={stringify(decoded.header, 2)} wrap />
        <Code label="Claims" text={stringify(decoded.claims, 2)} wrap />
      </div>
    </details>
  );
}
