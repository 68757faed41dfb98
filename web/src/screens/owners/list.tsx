import { useList } from '../../api/hooks';
import { planFilter, usePlans } from '../../api/plans';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';
import { CreateOwner } from './create';
import { type Owner, OwnerLink, OwnerState } from './parts';

export default function Owners() {
  const [url, change] = useUrl<'q' | 'state' | 'plan_id' | 'external_id' | 'cursor' | 'create'>();
  const { plans, nameOf } = usePlans();
  const refused = useRefusal('write', 'owners');
  const { q, state, plan_id, external_id, cursor } = url;
  const query = useList(
    '/v1/owners',
    { query: { q, state, plan_id, external_id, cursor, limit: 50 } },
    { refetchInterval: cursor ? false : 30_000 },
  );
  const filters: Filter[] = [
    { name: 'state', label: 'State', values: ['active', 'suspended'].map((v) => ({ value: v, label: v })) },
    planFilter(plans, nameOf),
    { name: 'external_id', label: 'Identifier' },
  ];
  const columns: Column<Owner>[] = [
    { title: 'Owner', className: 'w-full max-w-0', cell: (o) => <OwnerLink record={o} /> },
    { title: 'State', cell: (o) => <OwnerState record={o} /> },
    {
      title: 'Plan',
      className: 'max-w-36 2xl:max-w-56 hidden @lg:table-cell',
      cell: (o) => (
        <span className="block truncate" title={o.plan ?? undefined}>
          {o.plan ?? <span className="text-muted">–</span>}
        </span>
      ),
    },
    { title: 'Created', number: true, className: 'hidden @2xl:table-cell', cell: (o) => <Time at={o.created_at} /> },
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
