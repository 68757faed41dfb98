import type { Schemas } from '../api/client';
import { list } from './settings';

type Lists = Pick<Schemas['Route'], 'allow_ips' | 'deny_ips'>;

// addressesOf returns the lists of a route as the values of a form, with commas between the networks.
export const addressesOf = ({ allow_ips, deny_ips }: Lists) => ({
  allow_ips: (allow_ips ?? []).join(', '),
  deny_ips: (deny_ips ?? []).join(', '),
});

// listsOf returns what PATCH takes for the values of a form.
export const listsOf = (v: ReturnType<typeof addressesOf>) => ({ allow_ips: list(v.allow_ips), deny_ips: list(v.deny_ips) });

// addressWords says in a sentence whose addresses may use a route.
export function addressWords({ allow_ips, deny_ips }: Lists): string {
  const allowed = allow_ips?.join(', ');
  const denied = deny_ips?.join(', ');
  if (allowed && denied) return `Only addresses of ${allowed} may use it, and none of ${denied}: the longest prefix decides.`;
  if (allowed) return `Only addresses of ${allowed} may use it.`;
  if (denied) return `All addresses may use it but those of ${denied}.`;
  return 'All addresses that the gateway and the key allow may use it.';
}
