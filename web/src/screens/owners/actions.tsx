import { useNavigate } from '@tanstack/react-router';
import { api } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { plural } from '../../lib/format';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { ConfirmDialog } from '../../ui/dialog';
import { toast } from '../../ui/toast';
import type { Owner } from './parts';

interface Props {
  record: Owner;
  onClose: () => void;
}

const counted = 100; // keys

// useActiveKeys says how many keys of an owner are active, such as "3 active keys".
function useActiveKeys(record: Owner): string | undefined {
  const unread = useRefusal('read', 'keys');
  const page = useRecord('/v1/keys', { query: { owner: record.external_id, state: 'active', limit: counted } }, { enabled: !unread }).data
    ?.data;
  if (!page) return undefined;
  return page.next_cursor ? `${counted} or more active keys` : plural(page.data.length, 'active key');
}

const Named = ({ record }: { record: Owner }) => (
  <>
    The owner{' '}
    <b>
      <bdi>{record.external_id}</bdi>
    </b>
  </>
);

// setState suspends or resumes an owner.
async function setState(record: Owner, state: Owner['state']) {
  await api.patch('/v1/owners/{owner_id}', { path: { owner_id: record.owner_id }, body: { state } });
  toast(`Owner “${record.external_id}” is ${state === 'active' ? 'active again' : 'suspended'}`);
  await changed('/v1/owners');
}

const stateCommand = (record: Owner, word: 'suspend' | 'resume') => ({
  cli: `keygate owners ${word} ${quote(record.external_id)}`,
  method: 'PATCH',
  path: `/v1/owners/${record.owner_id}`,
  body: { state: word === 'suspend' ? 'suspended' : 'active' },
});

// SuspendOwner says what suspending does before it is done.
export function SuspendOwner({ record, onClose }: Props) {
  const keys = useActiveKeys(record);
  return (
    <ConfirmDialog title="Suspend the owner" action="Suspend the owner" onClose={onClose} run={() => setState(record, 'suspended')}>
      <p>
        <Named record={record} /> has <span aria-live="polite">{keys ?? 'an unknown number of active keys'}</span>. From the moment this
        succeeds their requests are refused with 403 and the code <code className="font-mono text-sm">owner_suspended</code>, on every node,
        and their streams and long responses are cut.
      </p>
      <p>The keys keep their state: when the owner is resumed they are let in again.</p>
      <div>
        <AsCode command={stateCommand(record, 'suspend')} />
      </div>
    </ConfirmDialog>
  );
}

// ResumeOwner lets the keys of an owner in again.
export function ResumeOwner({ record, onClose }: Props) {
  const keys = useActiveKeys(record);
  return (
    <ConfirmDialog harmless title="Resume the owner" action="Resume the owner" onClose={onClose} run={() => setState(record, 'active')}>
      <p>
        <Named record={record} /> has <span aria-live="polite">{keys ?? 'an unknown number of active keys'}</span>. They are let in again
        from the moment this succeeds.
      </p>
      <div>
        <AsCode command={stateCommand(record, 'resume')} />
      </div>
    </ConfirmDialog>
  );
}

// DeleteOwner deletes an owner that has no active keys.
export function DeleteOwner({ record, onClose }: Props) {
  const keys = useActiveKeys(record);
  const navigate = useNavigate();
  const run = async () => {
    await api.delete('/v1/owners/{owner_id}', { path: { owner_id: record.owner_id } });
    toast(`Owner “${record.external_id}” is deleted`);
    await navigate({ to: '/owners' });
    await changed('/v1/owners');
  };
  return (
    <ConfirmDialog title="Delete the owner" action="Delete the owner" onClose={onClose} run={run}>
      <p>
        <Named record={record} /> has <span aria-live="polite">{keys ?? 'an unknown number of active keys'}</span>. It is deleted with its
        metadata only if it has none: revoke its keys before, or suspend it instead.
      </p>
      <div>
        <AsCode
          command={{ cli: `keygate owners delete ${quote(record.external_id)}`, method: 'DELETE', path: `/v1/owners/${record.owner_id}` }}
        />
      </div>
    </ConfirmDialog>
  );
}
