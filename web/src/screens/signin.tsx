import { useState } from 'react';
import { ApiError, throughProvider } from '../api/client';
import { signIn, useConnection, useProvider } from '../api/session';
import { Button, Failure } from '../ui/basic';
import { Dialog } from '../ui/dialog';
import { Form, TextField } from '../ui/form';
import { Icon } from '../ui/icon';

// SignIn exchanges an account-level key for a session. The key is in the input and nowhere else, and is
// gone once it was accepted. With over, it covers a page whose session has ended.
export function SignIn({ over }: { over?: boolean }) {
  if (over) {
    return (
      <Dialog title="Your session has ended" stays onClose={() => {}}>
        <p className="mb-4 text-muted">Sign in to go on. The page behind keeps what you have typed.</p>
        <KeyForm />
      </Dialog>
    );
  }
  return (
    <main className="flex min-h-dvh flex-col items-center justify-center p-4">
      <div className="flex w-full max-w-sm flex-col gap-5 rounded-lg border border-line bg-surface p-6">
        <h1 className="flex items-center gap-2 text-xl font-semibold">
          <Icon name="gateway" className="size-6 text-accent" />
          Sign in to Keygate
        </h1>
        <KeyForm />
        <p className="text-sm text-muted">
          The key of a new installation is in <code className="font-mono">keygate-data/admin.key</code> on the server. It is exchanged for a
          session of 12 hours and not kept in the browser.
        </p>
      </div>
    </main>
  );
}

function KeyForm() {
  const { unreachable } = useConnection();
  const { provider } = useProvider();
  const [key, setKey] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const submit = async () => {
    if (busy) return;
    const given = key.trim();
    if (!given) {
      setError(new ApiError(0, 'missing', 'Enter an account-level key. It begins with kga_.'));
      return;
    }
    setBusy(true);
    setError(null);
    try {
      await signIn(given);
      setKey('');
    } catch (e) {
      setError(e instanceof ApiError ? e : new ApiError(0, 'unexpected', String(e)));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Form onSubmit={submit}>
      <TextField label="Account-level key" type="password" mono value={key} onChange={setKey} placeholder="kga_…" autoFocus name="key" />
      {error && <Failure error={error} />}
      {unreachable && !error && (
        <p role="status" className="text-warn">
          Keygate does not respond; trying again.
        </p>
      )}
      <Button type="submit" kind="primary" busy={busy}>
        Sign in
      </Button>
      {provider && (
        <a href={throughProvider(false)} className="link self-center">
          Continue with {provider}
        </a>
      )}
    </Form>
  );
}
