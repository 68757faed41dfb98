import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useForm } from '../../lib/form';
import { plural } from '../../lib/format';
import { hashedKeys, problemLines, readKeys } from '../../lib/importkeys';
import { Button, Notice, Warnings } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';
import { DocumentField } from '../../ui/document';
import { FormDialog } from '../../ui/formdialog';

const sample = '{"keys": [{"key": "…", "name": "mobile", "scope": "read", "owner": "customer-42"}]}';

// ImportKeys takes keys of another gateway. Their strings do not leave the browser, and are gone when the dialog closes.
export function ImportKeys({ onClose }: { onClose: () => void }) {
  const form = useForm({ text: '' });
  const [problem, setProblem] = useState('');
  const [made, setMade] = useState<{ keys: Schemas['ImportedKey'][]; unknown: number } | null>(null);
  const secure = Boolean(crypto.subtle);
  const submit = () => {
    setProblem('');
    let requests: Schemas['ImportKeyRequest'][];
    try {
      requests = readKeys(form.values.text);
    } catch (e) {
      setProblem((e as Error).message);
      return;
    }
    void form.submit(async () => {
      const keys = await hashedKeys(requests);
      const { data } = await api.post('/v1/keys/import', { body: { keys } });
      setMade({ keys: data.data, unknown: requests.filter((r) => r.sha256).length });
      form.reset({ text: '' });
      void changed('/v1/keys');
    });
  };
  if (made)
    return (
      <Dialog title="Import keys" onClose={onClose}>
        <div className="flex flex-col gap-4">
          <p role="status">{plural(made.keys.length, 'key')} imported. Gateways accept them from now on.</p>
          <Warnings texts={warningsOf(made.keys, made.unknown)} />
          <Button kind="primary" onClick={onClose}>
            Close
          </Button>
        </div>
      </Dialog>
    );
  return (
    <FormDialog
      title="Import keys"
      wide
      form={form}
      submit={submit}
      command={{
        cli: 'keygate keys import keys.json',
        method: 'POST',
        path: '/v1/keys/import',
        body: { keys: [{ sha256: '…', name: 'mobile', scope: 'read' }] },
      }}
      label="Import the keys"
      why={secure ? null : 'The browser cannot hash keys on a page without https.'}
      onClose={onClose}>
      <p className="text-muted">
        Keys that callers have already, such as those of another gateway, are accepted from now on. Keygate gets only their hashes. All of
        them are imported, or none.
      </p>
      {!secure && (
        <Notice>This page is not loaded by https, so the browser cannot hash keys here. Use the command line: keygate keys import.</Notice>
      )}
      <DocumentField
        label="Keys as JSON"
        value={form.values.text}
        onChange={(t) => form.set('text', t)}
        error={
          problem ||
          problemLines(
            form.errorsAt((f) => f.startsWith('keys')),
            form.values.text,
          )
        }
        hint={`${sample}, with the fields of a key; sha256 in place of key, if only the hash is known.`}
      />
    </FormDialog>
  );
}

// warningsOf returns the warnings of all keys, each once. The strength is unknown only of keys that came as hashes.
function warningsOf(keys: Schemas['ImportedKey'][], unknown: number): string[] {
  const texts = new Set(keys.flatMap((k) => k.warnings).filter((w) => w !== 'strength_unknown'));
  if (unknown > 0)
    texts.add(
      `Of ${plural(unknown, 'key')} only the hash is known, so nobody can say whether they may be guessed. Rotate those that are short.`,
    );
  return [...texts];
}
