import { useState } from 'react';
import { base } from '../api/client';
import { stringify } from '../api/json';
import { quote } from '../lib/shell';
import { Code } from './basic';
import { Dialog } from './dialog';
import { Button } from './basic';

// A Command is one action in the three forms that do not need the dashboard.
export interface Command {
  cli: string; // "keygate keys create …"
  method: string;
  path: string; // "/v1/keys"
  body?: unknown;
  file?: string; // as a configuration file
}

// AsCode shows an action as a command line, as curl, and as configuration file. why says why there is nothing
// to show yet.
export function AsCode({ command, why }: { command: Command; why?: string | null }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button kind="quiet" size="sm" why={why} onClick={() => setOpen(true)}>
        As code
      </Button>
      {open && (
        <Dialog title="The same as code" wide onClose={() => setOpen(false)}>
          <div className="flex flex-col gap-4">
            <Form name="As CLI" text={command.cli} />
            <Form name="As curl" text={curl(command)} />
            {command.file && <Form name="As configuration file" text={command.file} />}
          </div>
        </Dialog>
      )}
    </>
  );
}

function Form({ name, text }: { name: string; text: string }) {
  return (
    <section className="flex flex-col gap-1">
      <h3 className="font-medium">{name}</h3>
      <Code text={text} label={name} />
    </section>
  );
}

export function curl({ method, path, body }: Command): string {
  const lines = [
    `curl ${method === 'GET' ? '' : `-X ${method} `}${quote(location.origin + base + path.slice(1))}`,
    `-H "Authorization: Bearer $KEYGATE_API_KEY"`,
  ];
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quote(stringify(body))}`);
  return lines.join(' \\\n  ');
}
