import type { Schemas } from '../../api/client';
import { relative } from '../../lib/time';
import { Status, useNow } from '../../ui/basic';

export const week = 7 * 86_400_000;

// Imported marks a key whose string is not one of Keygate's.
export const Imported = () => <span className="rounded-md bg-hover px-1.5 text-sm text-muted">imported</span>;

// KeyState shows the state of a key, and warns of an expiry within a week.
export function KeyState({ record }: { record: Schemas['Key'] }) {
  const now = useNow();
  if (record.state === 'revoked')
    return (
      <Status tone="bad" icon="stop">
        Revoked
      </Status>
    );
  if (record.state === 'expired')
    return (
      <Status tone="plain" icon="clock">
        Expired
      </Status>
    );
  const ends = record.expires_at ? Date.parse(record.expires_at) : null;
  if (ends !== null && ends - now < week)
    return (
      <Status tone="warn" icon="clock">
        Expires {relative(ends, now)}
      </Status>
    );
  return <Status tone="ok">Active</Status>;
}
