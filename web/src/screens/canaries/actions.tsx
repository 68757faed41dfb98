import { type ReactNode, useState } from 'react';
import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { type Canary, hasEnded, waitsForPush, weightWords } from '../../lib/canary';
import { plural } from '../../lib/format';
import { AsCode } from '../../ui/ascode';
import { Button } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { toast } from '../../ui/toast';

type Action = 'pause' | 'resume' | 'promote' | 'abort';

interface Words {
  title: string;
  done: string;
  says: (c: Canary, other: ReactNode) => ReactNode;
}

const actions: Record<Action, Words> = {
  pause: {
    title: 'Pause the canary',
    done: 'The canary is paused',
    says: (c) => (
      <>It stays at {weightWords(c)} of the callers. Nothing is counted, and it is not aborted by itself, until it is resumed.</>
    ),
  },
  resume: {
    title: 'Resume the canary',
    done: 'The canary runs again',
    says: (c) => <>It goes on with the step of {weightWords(c)}, with the requests that it has counted.</>,
  },
  promote: {
    title: 'Promote the canary',
    done: 'The canary is promoted',
    says: (c, other) => (
      <>
        All callers of {plural(c.routes.length, 'route')} go to <b className="break-all">{c.upstream}</b> instead of {other}: the routes
        name it from then on. If they come from a repository or a file, the canary is held with all callers instead, and shows the lines to
        commit.
      </>
    ),
  },
  abort: {
    title: 'Abort the canary',
    done: 'The canary is aborted',
    says: (_, other) => <>All callers go to {other} again, at once. The canary cannot be resumed; start another one.</>,
  },
};

// CanaryActions pauses, resumes, promotes or aborts a canary.
export function CanaryActions({ canary: c }: { canary: Canary }) {
  const refused = useRefusal('write', `gateways/${c.gateway_id}/canaries/${c.canary_id}`);
  const [open, setOpen] = useState<Action | null>(null);
  if (hasEnded(c)) return null;
  const commits = waitsForPush(c) ? 'It has all callers, and ends when the lines are pushed.' : null;
  return (
    <span className="ml-auto flex flex-wrap gap-2">
      {c.state === 'running' && (
        <Button icon="pause" why={refused} onClick={() => setOpen('pause')}>
          Pause
        </Button>
      )}
      {c.state === 'paused' && (
        <Button icon="play" why={refused} onClick={() => setOpen('resume')}>
          Resume
        </Button>
      )}
      <Button icon="check" why={refused ?? commits} onClick={() => setOpen('promote')}>
        Promote
      </Button>
      <Button kind="danger" icon="stop" why={refused} onClick={() => setOpen('abort')}>
        Abort
      </Button>
      {open && <ActionDialog canary={c} action={open} onClose={() => setOpen(null)} />}
    </span>
  );
}

function ActionDialog({ canary: c, action, onClose }: { canary: Canary; action: Action; onClose: () => void }) {
  const { title, done, says } = actions[action];
  const run = async () => {
    const path = { gateway_id: c.gateway_id, canary_id: c.canary_id };
    const { data } = await api.post(`/v1/gateways/{gateway_id}/canaries/{canary_id}/${action}`, { path });
    toast(waitsForPush(data) ? 'The canary has all callers: commit its lines' : done);
    await changed('/v1/gateways');
  };
  const other = <b className="break-all">{c.other}</b>;
  return (
    <ConfirmDialog title={title} action={title} harmless={action !== 'abort'} onClose={onClose} run={run}>
      <p>{says(c, other)}</p>
      <div>
        <AsCode
          command={{
            cli: `keygate canary ${action} --gateway ${c.gateway_id} ${c.canary_id}`,
            method: 'POST',
            path: `/v1/gateways/${c.gateway_id}/canaries/${c.canary_id}/${action}`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}
