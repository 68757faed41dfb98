import { type ReactNode, useState } from 'react';
import { Button, Code, CopyButton } from './basic';
import { Dialog } from './dialog';
import { Icon } from './icon';

// SecretDialog shows a secret the one time that it can be seen. Closing asks until it was copied. The
// secret is in this component's properties only: the caller drops it in onClose.
export function SecretDialog({
  title,
  what,
  secret,
  forms = [],
  children,
  onClose,
}: {
  title: string;
  what: string; // "key", "signing secret"
  secret: string;
  forms?: { name: string; text: string }[]; // the secret in other forms, such as a call with curl
  children?: ReactNode;
  onClose: () => void;
}) {
  const [copied, setCopied] = useState(false);
  const [asked, setAsked] = useState(false);
  const mayClose = () => {
    if (copied || asked) return true;
    setAsked(true);
    return false;
  };
  return (
    <Dialog title={title} wide onClose={onClose} mayClose={mayClose}>
      <div className="flex flex-col gap-4">
        <p className="flex items-center gap-2">
          <Icon name="warn" className="text-warn" />
          This is the only time that the {what} is shown. Copy it now.
        </p>
        <div className="flex flex-wrap items-center gap-2 rounded-md border border-line bg-bg p-2 pl-3">
          <code data-secret onCopy={() => setCopied(true)} className="min-w-0 flex-1 font-mono break-all">
            {secret}
          </code>
          <CopyButton text={secret} label={`Copy the ${what}`} onCopied={() => setCopied(true)}>
            Copy
          </CopyButton>
        </div>
        {children}
        {forms.map((f) => (
          <details key={f.name} className="rounded-md border border-line" onCopy={() => setCopied(true)}>
            <summary className="px-3 py-2 font-medium">{f.name}</summary>
            <div className="flex flex-col gap-2 p-3 pt-0">
              <Code text={f.text} label={f.name} onCopied={() => setCopied(true)} />
              <div>
                <CopyButton text={f.text} label={`Copy: ${f.name}`} onCopied={() => setCopied(true)}>
                  Copy {f.name.toLowerCase()}
                </CopyButton>
              </div>
            </div>
          </details>
        ))}
        {asked && !copied && (
          <p role="alert" className="text-warn">
            You have not copied the {what}. It cannot be shown again: copy it, or close without it.
          </p>
        )}
        <div className="flex justify-end">
          <Button
            kind={copied ? 'primary' : 'plain'}
            onClick={() => {
              if (mayClose()) onClose();
            }}>
            {asked && !copied ? 'Close without copying' : 'Done'}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
