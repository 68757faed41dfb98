import { useMemo, useSyncExternalStore } from 'react';
import { type Answer, api, base, listen, type Schemas, setSignedOut } from './client';
import { queries, useRecord } from './hooks';

// State of the connection, shared by all screens.
//   ended:       a call was refused with 401: the sign-in form covers the page, which keeps its state
//   unreachable: the server does not respond; it is asked again until it does
interface State {
  ended: boolean;
  unreachable: boolean;
}

// Where the browser keeps the account of a session that may be open. Without it, the page asks for a key at once: a
// call would be refused, and be recorded in the audit log. The session itself is in a cookie that no script can read.
const mark = 'keygate-session';

// A sign-in through the identity provider ends on a page with this fragment. Its cookie is there, but no mark yet.
if (location.hash === '#signed-in') {
  localStorage.setItem(mark, 'signed-in');
  history.replaceState(history.state, '', location.pathname + location.search);
}

let state: State = { ended: localStorage.getItem(mark) === null, unreachable: false };
setSignedOut(state.ended);
const subscribers = new Set<() => void>();

function set(next: Partial<State>) {
  if (Object.entries(next).every(([k, v]) => state[k as keyof State] === v)) return;
  state = { ...state, ...next };
  setSignedOut(state.ended);
  for (const s of subscribers) s();
}

let probing = false;

async function probe() {
  if (probing) return;
  probing = true;
  for (let wait = 500; state.unreachable; wait = Math.min(wait * 1.5, 5_000)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (state.ended)
      await fetch(base, { cache: 'no-store' }).then(
        (r) => r.ok && set({ unreachable: false }),
        () => {},
      );
    else await api.get('/v1/account').catch(() => {});
  }
  probing = false;
  await queries.invalidateQueries();
}

listen((outcome) => {
  if (outcome === 'unreachable') {
    set({ unreachable: true });
    void probe();
  } else {
    if (outcome === 'unauthorized') localStorage.removeItem(mark);
    set({ unreachable: false, ...(outcome === 'unauthorized' ? { ended: true } : {}) });
  }
});

export function useConnection(): State {
  return useSyncExternalStore(
    (f) => {
      subscribers.add(f);
      return () => subscribers.delete(f);
    },
    () => state,
  );
}

// begin goes on with a session of an account.
async function begin(accountId: string) {
  const before = queries.getQueryData<Answer<Schemas['CallingAccount']>>(['/v1/account', {}, {}]);
  // Another account must see nothing of the last one.
  if (before && before.data.account_id !== accountId) queries.clear();
  set({ ended: false });
  await queries.invalidateQueries();
}

// The session is one of the browser: what another page of it does holds here as well.
window.addEventListener('storage', (e) => {
  if (e.key !== mark) return;
  if (e.newValue === null) set({ ended: true });
  else void begin(e.newValue);
});

// signIn exchanges an account-level key for a session (contract, 3.4). The key is not kept.
export async function signIn(key: string): Promise<void> {
  const { data } = await api.post('/v1/session', { body: { key } });
  localStorage.setItem(mark, data.account_id);
  await begin(data.account_id);
}

export async function signOut(): Promise<void> {
  await api.delete('/v1/session');
  localStorage.removeItem(mark);
  set({ ended: true });
  queries.clear();
}

const scopes = { viewer: 'read', editor: 'write', admin: 'admin' };

// credential returns the key of the session or, for that of a user, what stands for it: the name and the scope of the role.
export function credential(of: Pick<Schemas['CallingAccount'], 'key' | 'user'>): NonNullable<Schemas['AccountKey']> {
  if (of.key) return of.key;
  const { user } = of;
  return { key_id: user?.user_id ?? '', name: user?.name ?? user?.email ?? user?.subject ?? '', scope: user ? scopes[user.role] : '' };
}

// useAccount returns the account of the session, with its key or what stands for it.
export function useAccount() {
  const { ended } = useConnection();
  const account = useRecord('/v1/account', {}, { staleTime: 30_000, enabled: !ended }).data?.data;
  return useMemo(() => account && { ...account, key: credential(account) }, [account]);
}

// useProvider returns the name of the identity provider through which users sign in, and why there is none. While that is not known,
// provider is undefined.
export function useProvider(): { provider: string | null | undefined; none: string | null } {
  const query = useRecord('/v1/session/sso/provider', {}, { staleTime: Number.POSITIVE_INFINITY });
  const provider = query.data?.data.name ?? (query.isPending ? undefined : null);
  return { provider, none: provider === null ? 'The server has no --sso-issuer, so nobody can sign in by invitation.' : null };
}

export type Word = 'read' | 'write' | 'admin';
const rank: Record<string, number> = { read: 1, write: 2, admin: 3 };

const roleOf = { read: 'viewer', write: 'editor', admin: 'admin' };

// refusal says why the scope of a key forbids an action under a path, such as "keys" or
// "gateways/gw_1/routes", or returns null if it allows it; the path "" is everything. A user has a role in place of a key. Contract,
// sections 3 and 4.2.
export function refusal(scope: string, word: Word, path: string, role?: string): string | null {
  const allowed = scope.split(' ').some((one) => {
    const [has, resource] = [one.split(':', 1)[0] ?? '', one.includes(':') ? one.slice(one.indexOf(':') + 1) : ''];
    if ((rank[has] ?? 0) < (rank[word] ?? 0)) return false;
    const clean = resource.replace(/^\/|\/$/g, '');
    return clean === '' || path === clean || path.startsWith(`${clean}/`);
  });
  if (allowed) return null;
  if (role) return `You have the role “${role}”. This needs “${roleOf[word]}”.`;
  if (path === '') return `Your key has the scope “${scope}”. This needs “${word}” without a resource.`;
  return `Your key has the scope “${scope}”. This needs “${word}” or “${word}:${path.split('/')[0]}”.`;
}

// useRefusal is refusal for the key of the session; while the scope is not known, it is null.
export function useRefusal(word: Word, path: string): string | null {
  const account = useAccount();
  return account ? refusal(account.key.scope, word, path, account.user?.role) : null;
}

// wordOf returns the greatest word of a scope. A key with it can only be issued by a key whose own scopes have that
// word for keys: no key grants more than it has (contract, section 3).
export const wordOf = (scope: string): Word =>
  scope
    .split(' ')
    .map((one) => one.split(':', 1)[0] as Word)
    .reduce((a, b) => ((rank[b] ?? 0) > (rank[a] ?? 0) ? b : a), 'read');
