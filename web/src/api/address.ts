import type { Call } from '../lib/route';
import { quote } from '../lib/shell';
import type { Schemas } from './client';
import { useRecord } from './hooks';
import { useAccount, useRefusal } from './session';

// useCallLine returns a function that makes the line of curl that calls a gateway with a key. Names below
// localhost are reached at the data plane's own port. For other names, whoever runs Keygate decides what is in
// front of it, so there is no port. Only the account default may read the settings that say so.
export function useCallLine(): (gateway: Schemas['Gateway'] | undefined, key: string, call?: Call) => string {
  const operator = useAccount()?.name === 'default';
  const refused = useRefusal('read', 'settings');
  const settings =
    useRecord('/v1/settings', {}, { enabled: operator && !refused, staleTime: 300_000, retry: false }).data?.data.settings ?? [];
  const setting = (name: string) => String(settings.find((s) => s.name === name)?.value ?? '');
  return (gateway, key, { method, path } = { method: 'GET', path: '/' }) => {
    const host = gateway?.hostname ?? 'GATEWAY';
    const tls = setting('tls-cert') !== '';
    const port = /(^|\.)localhost$/.test(host) ? (/:(\d+)$/.exec(setting('gateway-addr'))?.[1] ?? '') : '';
    const address = `${tls ? 'https' : 'http'}://${host}${port === '' || port === (tls ? '443' : '80') ? '' : `:${port}`}${path}`;
    const header = gateway?.key_headers[0] ?? 'Authorization';
    return `curl ${method === 'GET' ? '' : `-X ${method} `}${quote(address)} \\\n  -H ${quote(header === 'Authorization' ? `Authorization: Bearer ${key}` : `${header}: ${key}`)}`;
  };
}
