import type { Target } from '../../api/upstreams';
import { looksUp } from '../../lib/upstream';
import { Status } from '../../ui/basic';

// TargetState says what is special about a target.
export function TargetState({ target }: { target: Pick<Target, 'backup' | 'drain' | 'resolve'> }) {
  return (
    <>
      {looksUp(target) && <Status tone="plain">{target.resolve === 'srv' ? 'SRV records' : 'Addresses of its name'}</Status>}
      {target.backup && <Status tone="plain">Backup</Status>}
      {target.drain && (
        <Status tone="warn" icon="pause">
          Draining
        </Status>
      )}
    </>
  );
}
