import { Link, useNavigate } from '@tanstack/react-router';
import type { Plan } from '../../api/plans';
import { useList } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import type { Filter } from '../../lib/filter';
import { planWords } from '../../lib/plan';
import { useUrl } from '../../lib/url';
import { Button, Empty, Page, Panel, Time } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';
import { type Column, PagedTable } from '../../ui/table';

const filters: Filter[] = [{ name: 'name', label: 'Name' }];

export default function Plans() {
  const [{ q, name, cursor }, change] = useUrl<'q' | 'name' | 'cursor'>();
  const refused = useRefusal('write', 'plans');
  const navigate = useNavigate();
  const query = useList('/v1/plans', { query: { q, name, cursor, limit: 50 } }, { refetchInterval: 30_000 });
  const columns: Column<Plan>[] = [
    {
      title: 'Name',
      className: 'w-1/4 max-w-0 min-w-28',
      cell: (p) => (
        <Link to="/plans/$planId" params={{ planId: p.plan_id }} className="row-link link block truncate font-medium" title={p.name}>
          {p.name}
        </Link>
      ),
    },
    {
      title: 'Title',
      className: 'w-1/4 max-w-0 hidden @3xl:table-cell',
      cell: (p) => (
        <span className="block truncate" title={p.title ?? undefined}>
          {p.title ?? <span className="text-muted">–</span>}
        </span>
      ),
    },
    {
      title: 'Limits',
      className: 'w-1/2 max-w-0',
      cell: (p) => (
        <span className="block truncate text-muted" title={planWords(p.limits)}>
          {planWords(p.limits)}
        </span>
      ),
    },
    { title: 'Created', number: true, className: 'hidden @2xl:table-cell', cell: (p) => <Time at={p.created_at} /> },
  ];
  const create = (
    <Button kind="primary" icon="plus" why={refused} onClick={() => void navigate({ to: '/plans/new' })}>
      Create a plan
    </Button>
  );
  return (
    <Page title="Plans" actions={create}>
      <Panel flush title={<FilterBar filters={filters} placeholder="Search plans by name or title" />}>
        <PagedTable
          label="Plans"
          query={query}
          columns={columns}
          rowKey={(p) => p.plan_id}
          empty={
            q || name ? (
              <Empty
                icon="search"
                title="No plan matches"
                action={<Button onClick={() => change({ q: undefined, name: undefined })}>Clear the filters</Button>}>
                Search finds a part of the name or title.
              </Empty>
            ) : (
              <Empty icon="plan" title="No plans yet" action={create}>
                A plan is a named set of limits. Many keys and owners share it, and a change of it holds for all of them.
              </Empty>
            )
          }
        />
      </Panel>
    </Page>
  );
}
