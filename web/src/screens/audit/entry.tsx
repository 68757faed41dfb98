import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client';
import { stringify } from '../../api/json';
import { useNames } from '../../api/names';
import { plural } from '../../lib/format';
import { exact } from '../../lib/time';
import { CopyButton, Details, Id, Status, type Tone } from '../../ui/basic';
import { Dialog } from '../../ui/dialog';

export type Entry = Schemas['AuditEntry'];

// keyOf tells the records of a list apart: one request can change many records.
export const keyOf = (e: Entry) => `${e.time} ${e.request_id} ${e.kind} ${e.action ?? ''} ${e.target ?? ''}`;

const outcomes: Record<Entry['outcome'], { tone: Tone; text: string }> = {
  success: { tone: 'ok', text: 'Success' },
  key_invalid: { tone: 'bad', text: 'Key invalid' },
  key_expired: { tone: 'warn', text: 'Key expired' },
  scope_insufficient: { tone: 'warn', text: 'Scope insufficient' },
  address_not_allowed: { tone: 'warn', text: 'Address not allowed' },
};

// Outcome is the outcome of an entry. In a list on a narrow screen its icon is enough, so that there is room for what
// was done.
export function Outcome({ value, listed }: { value: Entry['outcome']; listed?: boolean }) {
  const { tone, text } = outcomes[value];
  return <Status tone={tone}>{listed ? <span className="sr-only sm:not-sr-only">{text}</span> : text}</Status>;
}

// RecordLink leads to the record that an identifier names, if it has a page.
export function RecordLink({ id }: { id: string }) {
  const pages: Record<string, string> = {
    key: '/keys/$keyId',
    gw: '/gateways/$gatewayId',
    own: '/owners/$ownerId',
    plan: '/plans/$planId',
    iss: '/issuers/$issuerId',
    usr: '/users/$userId',
    wh: '/webhooks/$webhookId',
  };
  const { nameOf, known } = useNames([{ id }]);
  const page = pages[id.slice(0, id.indexOf('_'))];
  if (!page) return <Id value={id} />;
  return (
    <span className="flex max-w-full items-center gap-1">
      <Link
        to={page as '/'}
        params={{ keyId: id, gatewayId: id, ownerId: id, planId: id, issuerId: id, userId: id, webhookId: id } as never}
        className={`link wrap-anywhere ${known(id) ? '' : 'font-mono text-sm'}`}
        title={id}>
        {nameOf(id)}
      </Link>
      <CopyButton text={id} label={`Copy ${id}`} />
    </span>
  );
}

const actors: Partial<Record<NonNullable<Entry['actor']>['kind'], string>> = {
  offline: 'a command on the machine of the server',
  repository: 'the repository that the gateway follows',
  canary: 'Keygate, as it judged a canary',
  system: 'Keygate itself',
};

// ActorName says who made a change: a key or a user, with its name of that time, or what else.
function ActorName({ entry }: { entry: Entry }) {
  const { actor, actor_key_id } = entry;
  const id = actor?.id ?? actor_key_id;
  if (id)
    return (
      <>
        {actor?.name && <bdi>{actor.name} </bdi>}
        <RecordLink id={id} />
      </>
    );
  return <>{(actor && actors[actor.kind]) ?? 'the server itself, or a command on its machine'}</>;
}

// EntryDialog shows everything of a record, with the values before and after a change.
export function EntryDialog({ entry, onClose }: { entry: Entry; onClose: () => void }) {
  const changes = Object.entries(entry.diff ?? {});
  return (
    <Dialog title={entry.action ?? `${entry.method} ${entry.path}`} wide onClose={onClose}>
      <div className="flex flex-col gap-4">
        <Details
          rows={[
            ['Time', exact(entry.time)],
            ['Outcome', <Outcome key="o" value={entry.outcome} />],
            ['Request', <Id key="r" value={entry.request_id} />],
            [
              'Method and path',
              <code key="m" className="font-mono text-sm break-all">
                {entry.method} {entry.path}
              </code>,
            ],
            ['Client', entry.client_ip || '–'],
            ...(Number(entry.count) > 1
              ? [
                  [
                    'Stands for',
                    `${plural(entry.count, 'refused request')} of this address in that minute, beyond the 60 that have entries of their own`,
                  ] as [string, React.ReactNode],
                ]
              : []),
            ...((entry.credential === 'token'
              ? [
                  ['Token of', entry.issuer_id ? <RecordLink key="i" id={entry.issuer_id} /> : 'an unknown issuer'],
                  ['Subject', <bdi key="s">{entry.subject ?? '–'}</bdi>],
                ]
              : [['Key', entry.key_id ? <RecordLink key="k" id={entry.key_id} /> : (entry.key_prefix ?? '–')]]) as [
              string,
              React.ReactNode,
            ][]),
            ...(entry.gateway_id ? [['Gateway', <RecordLink key="g" id={entry.gateway_id} />] as [string, React.ReactNode]] : []),
            ...(entry.target ? [['Target', <RecordLink key="t" id={entry.target} />] as [string, React.ReactNode]] : []),
            ...(entry.kind === 'management' && entry.action
              ? [['Actor', <ActorName key="a" entry={entry} />] as [string, React.ReactNode]]
              : []),
          ]}
        />
        {changes.length > 0 && (
          <div className="overflow-x-auto rounded-md border border-line" tabIndex={0} role="region" aria-label="Changes">
            <table aria-label="Changes" className="w-full table-fixed sm:table-auto">
              <thead>
                <tr className="border-b border-line text-left text-sm text-muted">
                  <th scope="col" className="px-3 py-1.5 font-medium">
                    Field
                  </th>
                  <th scope="col" className="px-3 font-medium">
                    Before
                  </th>
                  <th scope="col" className="px-3 font-medium">
                    After
                  </th>
                </tr>
              </thead>
              <tbody>
                {changes.map(([field, pair]) => (
                  <tr key={field} className="border-b border-line align-top last:border-0">
                    <th scope="row" className="px-3 py-1.5 text-left font-mono text-sm font-normal break-words">
                      {field}
                    </th>
                    <td
                      className={`px-3 py-1.5 font-mono text-sm break-all whitespace-pre-wrap ${pair?.[0] == null ? 'text-muted' : 'text-bad'}`}>
                      {show(pair?.[0])}
                    </td>
                    <td
                      className={`px-3 py-1.5 font-mono text-sm break-all whitespace-pre-wrap ${pair?.[1] == null ? 'text-muted' : 'text-ok'}`}>
                      {show(pair?.[1])}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </div>
    </Dialog>
  );
}

// A value that is too large for the log is described by its length and digest.
function isOmitted(value: unknown): value is { bytes: number; sha256: string } {
  return typeof value === 'object' && value !== null && 'omitted' in value && value.omitted === true;
}

function show(value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (isOmitted(value)) return `not kept: ${value.bytes.toLocaleString('en')} bytes, SHA-256 ${value.sha256}`;
  return typeof value === 'string' ? value : stringify(value, 2);
}
