import type { Schemas } from '../../api/client';
import { Failure } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { SecretDialog } from '../../ui/secret';

// NewSecret shows the signing secret of an endpoint the one time.
export function NewSecret({
  record,
  title,
  children,
  onClose,
}: {
  record: Schemas['NewWebhook'];
  title: string;
  children?: React.ReactNode;
  onClose: () => void;
}) {
  const secret = record.signing_secret;
  if (!secret)
    return (
      <Dialog title={title} onClose={onClose}>
        <Failure error={new Error(record.message ?? 'The response has no secret. Rotate it to get a new one.')} />
      </Dialog>
    );
  const forms = [
    { name: '.env', text: `KEYGATE_WEBHOOK_SECRET=${secret}` },
    ...(record.standard_webhooks_secret ? [{ name: 'For libraries of Standard Webhooks', text: record.standard_webhooks_secret }] : []),
  ];
  return (
    <SecretDialog title={title} what="signing secret" secret={secret} forms={forms} onClose={onClose}>
      {children}
      <p className="text-muted">
        Deliveries are signed with it. Check the header <code className="font-mono">X-Service-Signature</code>, or{' '}
        <code className="font-mono">webhook-signature</code> with a library of Standard Webhooks.
      </p>
    </SecretDialog>
  );
}
