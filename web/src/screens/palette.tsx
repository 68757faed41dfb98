import { useNavigate, useRouterState } from '@tanstack/react-router';
import { useEffect, useMemo, useRef, useState } from 'react';
import { useDocs } from '../api/docs';
import { useList } from '../api/hooks';
import { refusal, useAccount, type Word } from '../api/session';
import { useDebounced } from '../lib/debounced';
import { searchDocs, sections } from '../lib/docsearch';
import { withoutSecret } from '../lib/secret';
import { defaultUpstream } from '../lib/upstream';
import { menu } from '../menu';
import { Dialog } from '../ui/dialog';
import { inputClass } from '../ui/form';
import { Icon, type IconName } from '../ui/icon';

interface Item {
  id: string;
  icon: IconName;
  label: string;
  note?: string;
  to: string;
  search?: Record<string, string>;
  params?: Record<string, string>;
  hash?: string;
  needs?: [Word, string];
  why?: string | null;
}

const actions: Item[] = [
  { id: 'new-key', icon: 'plus', label: 'Create a key', to: '/keys', search: { create: '1' }, needs: ['write', 'keys'] },
  { id: 'new-owner', icon: 'plus', label: 'Create an owner', to: '/owners', search: { create: '1' }, needs: ['write', 'owners'] },
  { id: 'new-plan', icon: 'plus', label: 'Create a plan', to: '/plans/new', needs: ['write', 'plans'] },
  { id: 'new-issuer', icon: 'plus', label: 'Create an issuer', to: '/issuers/new', needs: ['admin', 'issuers'] },
  { id: 'new-user', icon: 'plus', label: 'Invite a user', to: '/users', search: { invite: '1' }, needs: ['admin', ''] },
  { id: 'new-gateway', icon: 'plus', label: 'Create a gateway', to: '/gateways/new', needs: ['write', 'gateways'] },
  {
    id: 'new-webhook',
    icon: 'plus',
    label: 'Add a webhook endpoint',
    to: '/webhooks',
    search: { create: '1' },
    needs: ['write', 'webhooks'],
  },
  { id: 'certificates', icon: 'check', label: 'Certificates', to: '/certificates', needs: ['read', 'certificates'] },
  { id: 'failed', icon: 'webhook', label: 'Failed deliveries', to: '/deliveries', search: { state: 'failed' } },
];

// actionsOf returns what can be done with the gateway of the page.
const actionsOf = (gatewayId: string): Item[] => [
  {
    id: 'upstreams',
    icon: 'external',
    label: 'Upstreams of this gateway',
    to: `/gateways/${gatewayId}/upstreams`,
    needs: ['read', `gateways/${gatewayId}/upstreams`],
  },
  {
    id: 'new-target',
    icon: 'plus',
    label: 'Add a target',
    to: `/gateways/${gatewayId}/upstreams/${defaultUpstream}`,
    search: { add: '1' },
    needs: ['write', `gateways/${gatewayId}/upstreams`],
  },
  {
    id: 'new-upstream',
    icon: 'plus',
    label: 'Add an upstream',
    to: `/gateways/${gatewayId}/new-upstream`,
    needs: ['write', `gateways/${gatewayId}/upstreams`],
  },
  {
    id: 'canaries',
    icon: 'branch',
    label: 'Canaries of this gateway',
    to: `/gateways/${gatewayId}/canaries`,
    needs: ['read', `gateways/${gatewayId}/canaries`],
  },
  {
    id: 'new-canary',
    icon: 'plus',
    label: 'Start a canary',
    to: `/gateways/${gatewayId}/canaries`,
    search: { start: '1' },
    needs: ['write', `gateways/${gatewayId}/canaries`],
  },
];

// Palette finds pages, actions, gateways, keys, owners and plans. An identifier leads straight to its record.
export default function Palette({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const scope = useAccount()?.key.scope ?? '';
  const [text, setText] = useState('');
  const asked = useDebounced(text.trim(), 150);
  const [at, setAt] = useState(0);
  const gatewayId = useRouterState({ select: (s) => /\/gateways\/(gw_\w+)/.exec(s.location.pathname)?.[1] });
  const mayRead = (path: string) => refusal(scope, 'read', path) === null;
  const keys = useList('/v1/keys', { query: { q: asked, limit: 5 } }, { enabled: asked.length > 1 && mayRead('keys') });
  const gateways = useList('/v1/gateways', { query: { q: asked, limit: 5 } }, { enabled: asked !== '' && mayRead('gateways') });

  const owners = useList('/v1/owners', { query: { q: asked, limit: 5 } }, { enabled: asked.length > 1 && mayRead('owners') });
  const plans = useList('/v1/plans', { query: { q: asked, limit: 5 } }, { enabled: asked !== '' && mayRead('plans') });

  const docs = useDocs(asked.length > 1);
  const parts = useMemo(() => sections(docs.data ?? []), [docs.data]);

  const word = text.trim().toLowerCase();
  const items: Item[] = [
    ...byIdentifier(text.trim()),
    ...[
      ...menu.map((p): Item => ({ id: p.to, icon: p.icon, label: p.label, to: p.to, search: p.search })),
      ...actions,
      ...(gatewayId ? actionsOf(gatewayId) : []),
    ]
      .filter((i) => i.label.toLowerCase().includes(word))
      .map((i) => ({ ...i, why: i.needs && refusal(scope, ...i.needs) })),
    ...(asked !== '' && word !== '' ? (gateways.data?.data.data ?? []) : []).map((g): Item => ({
      id: g.gateway_id,
      icon: 'gateway',
      label: g.name,
      note: g.hostname,
      to: `/gateways/${g.gateway_id}`,
    })),
    ...(asked.length > 1 && word !== '' ? (keys.data?.data.data ?? []) : []).map((k): Item => ({
      id: k.key_id,
      icon: 'key',
      label: k.name,
      note: k.key_prefix,
      to: `/keys/${k.key_id}`,
    })),
    ...(asked.length > 1 && word !== '' ? (owners.data?.data.data ?? []) : []).map((o): Item => ({
      id: o.owner_id,
      icon: 'owner',
      label: o.name ?? o.external_id,
      note: o.name ? o.external_id : undefined,
      to: `/owners/${o.owner_id}`,
    })),
    ...(asked !== '' && word !== '' ? (plans.data?.data.data ?? []) : []).map((p): Item => ({
      id: p.plan_id,
      icon: 'plan',
      label: p.title ?? p.name,
      note: p.title ? p.name : undefined,
      to: `/plans/${p.plan_id}`,
    })),
    ...(word.length > 1 ? searchDocs(parts, word, 5) : []).map((s): Item => ({
      id: `help-${s.page}-${s.anchor}`,
      icon: 'help',
      label: s.heading || s.title,
      note: 'Help',
      to: '/help/$page',
      params: { page: s.page },
      hash: s.anchor,
    })),
  ];
  const selected = Math.min(at, items.length - 1);
  const go = (i: Item | undefined) => {
    if (!i || i.why) return;
    onClose();
    void navigate({ to: i.to as '/', params: i.params as never, search: (i.search ?? {}) as never, hash: i.hash });
  };
  const results = useRef<HTMLUListElement>(null);
  useEffect(() => {
    results.current?.children[selected]?.scrollIntoView({ block: 'nearest' });
  }, [selected]);
  const searching = text.trim() !== '' && (asked !== text.trim() || [keys, gateways, owners, plans].some((list) => list.isFetching));
  return (
    <Dialog title="Search or go to" onClose={onClose}>
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant={items[selected] ? `p-${items[selected].id}` : undefined}
        aria-label="Search for a page, record or identifier"
        value={text}
        autoComplete="off"
        spellCheck={false}
        className={inputClass}
        onChange={(e) => {
          setText(withoutSecret(e.target.value));
          setAt(0);
        }}
        onKeyDown={(e) => {
          if (e.key === 'ArrowDown') {
            e.preventDefault();
            setAt(Math.min(selected + 1, items.length - 1));
          }
          if (e.key === 'ArrowUp') {
            e.preventDefault();
            setAt(Math.max(selected - 1, 0));
          }
          if (e.key === 'Enter') {
            e.preventDefault();
            go(items[selected]);
          }
        }}
      />
      <ul ref={results} id="palette" role="listbox" aria-label="Results" className="mt-2 h-[min(20rem,calc(100dvh-12rem))] overflow-auto">
        {items.map((i, n) => (
          <li
            key={i.id}
            id={`p-${i.id}`}
            role="option"
            aria-selected={n === selected}
            aria-disabled={i.why ? true : undefined}
            title={i.why ?? undefined}
            onClick={() => go(i)}
            className="flex h-9 cursor-pointer aria-disabled:cursor-not-allowed items-center gap-2.5 rounded-md px-2.5 hover:bg-hover aria-selected:bg-accent-soft aria-selected:text-accent">
            <Icon name={i.icon} />
            <span className="truncate" title={i.why ? undefined : i.label}>
              {i.label}
            </span>
            {i.why && <span className="ml-auto truncate pl-3 text-sm text-muted">{i.why}</span>}
            {i.note && <span className="ml-auto truncate pl-3 font-mono text-sm text-muted">{i.note}</span>}
          </li>
        ))}
      </ul>
      {items.length === 0 && (
        <p role="status" className="text-muted">
          {searching
            ? 'Searching…'
            : 'Nothing found. Gateways are found by name, hostname or upstream, keys by name or prefix, owners and plans by name, other records by identifier.'}
        </p>
      )}
    </Dialog>
  );
}

function byIdentifier(text: string): Item[] {
  const kinds: Record<string, [string, IconName]> = {
    gw: ['/gateways', 'gateway'],
    key: ['/keys', 'key'],
    own: ['/owners', 'owner'],
    plan: ['/plans', 'plan'],
    iss: ['/issuers', 'issuer'],
    req: ['/requests', 'request'],
    usr: ['/users', 'user'],
    wh: ['/webhooks', 'webhook'],
    dlv: ['/deliveries', 'webhook'],
    evt: ['/events', 'webhook'],
  };
  const kind = /^(gw|key|own|plan|iss|req|usr|wh|dlv|evt)_[0-9a-z]{26}$/.exec(text)?.[1];
  const found = kind && kinds[kind];
  return found ? [{ id: text, icon: found[1], label: `Open ${text}`, to: `${found[0]}/${text}` }] : [];
}
