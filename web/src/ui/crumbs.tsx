import { useIsFetching } from '@tanstack/react-query';
import { Link, useMatches, useRouterState } from '@tanstack/react-router';
import { useEffect } from 'react';
import { queries } from '../api/hooks';
import { kindOf } from '../api/names';
import type { Answer } from '../api/client';

const words: Record<string, string> = {
  gateways: 'Gateways',
  routes: 'Routes',
  keys: 'Keys',
  owners: 'Owners',
  plans: 'Plans',
  issuers: 'Issuers',
  'usage-records': 'Usage records',
  requests: 'Requests',
  webhooks: 'Webhooks',
  deliveries: 'Deliveries',
  events: 'Events',
  catalogue: 'Catalogue',
  users: 'Users',
  invitations: 'Invitations',
  device: 'Device',
  audit: 'Audit log',
  settings: 'Settings',
  help: 'Help',
  new: 'New',
  edit: 'Edit',
  push: 'Push',
  revisions: 'Revisions',
  repository: 'Repository',
  validation: 'Validation',
  upstreams: 'Upstreams',
  target: 'Target',
  'new-upstream': 'New upstream',
  canaries: 'Canaries',
  certificates: 'Certificates',
};

// Crumbs shows where the page is, and sets the document's title.
export function Crumbs() {
  const matches = useMatches();
  useIsFetching(); // a name may have been read
  const path = (matches[matches.length - 1]?.pathname ?? '/').replace(/^\/|\/$/g, '');
  const parts = path === '' ? [] : path.split('/');
  const home = useRouterState({ select: (s) => s.location.pathname === '/' || matches.length > 1 }) ? 'Overview' : 'Page not found';
  const shown = parts.map((p, i) => ({ to: `/${parts.slice(0, i + 1).join('/')}`, ...labelOf(decodeURIComponent(p), parts[i - 1]) }));
  const title = shown.length
    ? `${shown
        .map((s) => s.title)
        .toReversed()
        .join(' · ')} · Keygate`
    : `${home} · Keygate`;
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <nav aria-label="Breadcrumb" className="min-w-0">
      <ol className="flex min-w-0 items-center gap-1.5 text-muted">
        {shown.length === 0 && (
          <li aria-current="page" className="text-text">
            {home}
          </li>
        )}
        {/* A name that arrives replaces what is behind it: nothing is seen to move. */}
        {shown.map((s, i) => (
          <li
            key={
              shown
                .slice(0, i)
                .map((before) => before.label)
                .join('/') + s.to
            }
            className={`flex ${words[parts[i]!] && parts[i - 1] !== 'upstreams' ? 'shrink-0' : 'min-w-0'} items-center gap-1.5 ${i < shown.length - 1 ? 'hidden sm:flex' : ''}`}>
            {i > 0 && (
              <span aria-hidden="true" className="hidden sm:inline">
                /
              </span>
            )}
            {i < shown.length - 1 ? (
              <Link to={s.to} className="truncate hover:text-text">
                <bdi>{s.label}</bdi>
              </Link>
            ) : (
              <span aria-current="page" className="truncate text-text">
                <bdi>{s.label}</bdi>
              </span>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}

// labelOf returns what stands for a part of the path, and what does so in the title: a word, or the name of a record
// that has been read, or a short form of its identifier. An upstream is in the path by its name.
function labelOf(part: string, before?: string): { label: string; title: string } {
  if (before === 'upstreams') return { label: part, title: part };
  const id = part.length > 16 ? `${part.slice(0, part.indexOf('_') + 1)}…${part.slice(-6)}` : part;
  const label = words[part] ?? nameOf(part) ?? id;
  return { label, title: kindOf(part)?.foreign ? id : label };
}

// nameOf returns the name of a record, if it has been read.
function nameOf(id: string): string | undefined {
  const kind = kindOf(id);
  const read = kind && queries.getQueryCache().findAll({ queryKey: [kind.path] });
  for (const q of read ?? []) {
    const record = (q.state.data as Answer<Record<string, unknown>> | undefined)?.data;
    if (kind && record && Object.values(q.queryKey[1] as object).at(-1) === id) return kind.named(record).name;
  }
  return undefined;
}
