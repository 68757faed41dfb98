import type { Issuer } from '../../api/issuers';
import { keysOf } from '../../lib/issuer';
import { Status } from '../../ui/basic';

// usable counts the keys of an issuer that verify tokens.
export const usable = (i: Issuer): number => i.keys.filter((k) => !k.unusable).length;

// IssuerState says whether the keys of an issuer could be fetched, and whether it has any.
export function IssuerState({ issuer }: { issuer: Issuer }) {
  if (issuer.state === 'unreachable') return <Status tone="bad">Unreachable</Status>;
  if (usable(issuer) > 0) return <Status tone="ok">OK</Status>;
  return keysOf(issuer) === 'given' || issuer.keys.length > 0 ? (
    <Status tone="warn">No usable key</Status>
  ) : (
    <Status tone="info">Not fetched yet</Status>
  );
}
