import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { Empty, Time } from '../../ui/basic';
import { ListPanel } from '../../ui/listpanel';
import { KeyState } from './state';

// FewKeys lists the newest keys of an owner or plan, and leads to all of them.
export function FewKeys({ of, none }: { of: { owner: string } | { plan_id: string }; none: string }) {
  const query = useList('/v1/keys', { query: { ...of, limit: 8 } }, { refetchInterval: 30_000 });
  return (
    <ListPanel
      title="Keys"
      actions={
        <Link to="/keys" search={of} className="link">
          All of these keys
        </Link>
      }
      query={query}
      rowKey={(k) => k.key_id}
      empty={
        <Empty icon="key" title="No keys">
          {none}
        </Empty>
      }
      columns={[
        {
          title: 'Name',
          className: 'w-full max-w-0',
          cell: (k) => (
            <Link to="/keys/$keyId" params={{ keyId: k.key_id }} className="row-link link block truncate font-medium" title={k.name}>
              {k.name}
            </Link>
          ),
        },
        { title: 'State', cell: (k) => <KeyState record={k} /> },
        { title: 'Last used', number: true, className: 'hidden @lg:table-cell', cell: (k) => <Time at={k.last_used_at} none="never" /> },
      ]}
    />
  );
}
