import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { Empty } from '../../ui/basic';
import { ListPanel } from '../../ui/listpanel';
import { OwnerLink, OwnerState } from './parts';

// useFewOwners reads the newest owners of a plan.
export const useFewOwners = (planId: string) =>
  useList('/v1/owners', { query: { plan_id: planId, limit: 8 } }, { refetchInterval: 30_000 });

// FewOwners lists the newest owners of a plan, and leads to all of them.
export function FewOwners({ planId }: { planId: string }) {
  const query = useFewOwners(planId);
  return (
    <ListPanel
      title="Owners"
      actions={
        <Link to="/owners" search={{ plan_id: planId }} className="link">
          All of these owners
        </Link>
      }
      query={query}
      rowKey={(o) => o.owner_id}
      empty={
        <Empty icon="owner" title="No owners">
          No owner has this plan.
        </Empty>
      }
      columns={[
        { title: 'Owner', className: 'w-full max-w-0', cell: (o) => <OwnerLink record={o} /> },
        { title: 'State', cell: (o) => <OwnerState record={o} /> },
      ]}
    />
  );
}
