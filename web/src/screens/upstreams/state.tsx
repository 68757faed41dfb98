import type { Target } from '../../api/upstreams';
import { Status } from '../../ui/basic';

// TargetState says what is special about a target.
export function TargetState({ target }: { target: Pick<Target, 'backup' | 'drain'> }) {
  return (
    <>
      {target.backup && <Status tone="plain">Backup</Status>}
      {target.drain && (
        <Status tone="warn" icon="pause">
          Draining
        </Status>
      )}
    </>
  );
}
