import { useRecord } from './hooks';
import { useRefusal } from './session';

// Found is the record that a typed text names: its identifier once it is known, or why there is none.
export interface Found {
  id?: string; // undefined too if the text is an identifier already
  why: string | null;
}

// useTypedKey finds the key that a text names, by its name or prefix.
export function useTypedKey(typed = ''): Found {
  const refused = useRefusal('read', 'keys');
  const text = typed.startsWith('key_') ? '' : typed;
  const found = useRecord('/v1/keys', { query: { q: text, level: 'gateway', limit: 2 } }, { enabled: text !== '' && !refused });
  if (text === '') return { why: null };
  if (refused) return { why: `${refused} Use the identifier of the key.` };
  if (found.error) return { why: found.error.message };
  const keys = found.data?.data.data;
  if (!keys) return { why: 'Looking for the key…' };
  if (keys.length === 1) return { id: keys[0]?.key_id, why: 'Looking for the key…' };
  return {
    why:
      keys.length === 0
        ? `No key has “${text}” in its name or begins with it.`
        : `Several keys match “${text}”. Type more of the prefix, or the identifier.`,
  };
}

// useTypedOwner finds the owner that a text names: the one with that external identifier, or else the only one that has
// the text in its name or identifier.
export function useTypedOwner(typed = ''): Found {
  const refused = useRefusal('read', 'owners');
  const text = /^own_[0-9a-z]{26}$/.test(typed) ? '' : typed;
  const enabled = text !== '' && !refused;
  const same = useRecord('/v1/owners', { query: { external_id: text, limit: 1 } }, { enabled });
  const like = useRecord('/v1/owners', { query: { q: text, limit: 2 } }, { enabled });
  if (text === '') return { why: null };
  if (refused) return { why: `${refused} Use the identifier of the owner in Keygate.` };
  const error = same.error ?? like.error;
  if (error) return { why: error.message };
  const [exact, owners] = [same.data?.data.data, like.data?.data.data];
  if (!exact || !owners) return { why: 'Looking for the owner…' };
  const owner = exact[0] ?? (owners.length === 1 ? owners[0] : undefined);
  if (owner) return { id: owner.owner_id, why: 'Looking for the owner…' };
  return {
    why:
      owners.length === 0
        ? `No owner has “${text}” in its name or identifier.`
        : `Several owners match “${text}”. Type the whole identifier of one.`,
  };
}
