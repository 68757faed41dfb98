import type { Difference } from '../lib/edit';
import { Button } from './basic';
import { Icon } from './icon';

// Conflict says what another session has changed since a form was opened. The form keeps what was typed.
export function Conflict({ differences, onKeep, onTake }: { differences: Difference[]; onKeep: () => void; onTake: () => void }) {
  return (
    <div role="alert" className="flex flex-col gap-2 rounded-md border border-warn bg-warn-soft p-3">
      <p className="flex items-center gap-2 font-medium">
        <Icon name="warn" className="text-warn" />
        Somebody else has changed this in the meantime. Nothing was saved.
      </p>
      {differences.length === 0 && (
        <p className="pl-6">No field here shows a difference: it is a secret value, or something that is not in this form.</p>
      )}
      {differences.length > 0 && (
        <ul className="list-disc pl-10 break-words">
          {differences.map((d) => (
            <li key={d.name}>
              {d.name} is now <b>{d.theirs}</b>
              {d.mine !== undefined && (
                <>
                  ; you have <b>{d.mine}</b>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      <div className="flex flex-wrap gap-2 pl-6">
        <Button size="sm" onClick={onKeep}>
          Keep my changes
        </Button>
        <Button size="sm" onClick={onTake}>
          Take theirs
        </Button>
      </div>
    </div>
  );
}
