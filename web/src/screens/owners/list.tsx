import { useList } from '../../api/hooks';
import { planFilter, usePlans } from '../../api/plans';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { leftWords, shareWords, unitsIn, wholeOf } from '../../lib/quota';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { CreateOwner } from './create';
import { Bar } from '../quotas/panel';
import { type Owner, OwnerLink, OwnerState } from './parts';

// Tightest shows the quota of which an owner has used the greatest share.
function Tightest({ of: u }: { of: Owner['tightest_quota'] }) {
  if (!u) return <span className="text-muted">–</span>;
  const show = unitsIn(u);
  return (
    <div className="flex items-center gap-2" title={`${u.plan}.${u.limit}: ${show(u.used)} of ${show(wholeOf(u))}, ${leftWords(u)}`}>
      <div className="min-w-8 flex-1">
        <Bar of={u} />
      </div>
      <span className="w-12 text-right text-sm whitespace-nowrap">{shareWords(u)}</span>
    </div>
  );
}

export default function Owners() {
  const [url, change] = useUrl<'q' | 'state' | 'plan_id' | 'external_id' | 'cursor' | 'create'>();
  const { plans, nameOf } = usePlans();
  const refused = useRefusal('write', 'owners');
  const { q, state, plan_id, external_id, cursor } = url;
  const query = useList(
    '/v1/owners',
    { query: { q, state, plan_id, external_id, cursor, limit: 50, usage: true } },
    { refetchInterval: cursor ? false : 30_000 },
  );
  const filters: Filter[] = [
    { name: 'state', label: 'State', values: ['active', 'suspended'].map((v) => ({ value: v, label: v })) },
    planFilter(plans, nameOf),
    { name: 'external_id', label: 'Identifier' },
  ];
  const columns: Column<Owner>[] = [
    {
      title: 'Owner',
      className: 'w-full max-w-0',
      cell: (o) => (
        <>
          <OwnerLink record={o} />
          {o.state !== 'active' && (
            <span className="@lg:hidden">
              <OwnerState record={o} />
            </span>
          )}
        </>
      ),
    },
    { title: 'State', className: 'hidden @lg:table-cell', cell: (o) => <OwnerState record={o} /> },
    {
      title: 'Plan',
      className: 'max-w-36 2xl:max-w-56 hidden @lg:table-cell',
      cell: (o) => (
        <span className="block truncate" title={o.plan ?? undefined}>
          {o.plan ?? <span className="text-muted">–</span>}
        </span>
      ),
    },
    {
      title: 'Tightest quota',
      className: 'w-24 min-w-20 @lg:w-36 @4xl:w-48 @4xl:min-w-40',
      cell: (o) => <Tightest of={o.tightest_quota} />,
    },
    { title: 'Created', number: true, className: 'hidden @4xl:table-cell', cell: (o) => <Time at={o.created_at} /> },
  ];
  const create = (
    <Button kind="primary" icon="plus" why={refused} onClick={() => change({ create: '1' })}>
      Create an owner
    </Button>
  );
  return (
    <Page title="Owners" actions={create}>
      <Panel flush title={<FilterBar filters={filters} placeholder="Search owners by name or identifier" />}>
        <PagedTable
          label="Owners"
          query={query}
          columns={columns}
          rowKey={(o) => o.owner_id}
          empty={
            q || state || plan_id || external_id ? (
              <Empty
                icon="search"
                title="No owner matches"
                action={
                  <Button onClick={() => change({ q: undefined, state: undefined, plan_id: undefined, external_id: undefined })}>
                    Clear the filters
                  </Button>
                }>
                Search finds a part of the name or identifier.
              </Empty>
            ) : (
              <Empty icon="owner" title="No owners yet" action={create}>
                An owner is the customer or team whose keys these are. A key that names a new one creates it.
              </Empty>
            )
          }
        />
      </Panel>
      {url.create && !refused && <CreateOwner onClose={() => change({ create: undefined }, true)} />}
    </Page>
  );
}
