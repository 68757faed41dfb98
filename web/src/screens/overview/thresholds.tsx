import { Link } from '@tanstack/react-router';
import { useList } from '../../api/hooks';
import { useNames } from '../../api/names';
import { serverNow } from '../../api/client';
import { amountWords } from '../../lib/usage';
import { passedLast, type Threshold, windowKey } from '../../lib/threshold';
import { Moment, Panel, Time } from '../../ui/basic';
import { Table } from '../../ui/table';

const most = 8;

// Thresholds lists whose quotas are nearly used up, or are: the thresholds that were passed in the last 7 days, for which events
// are kept, of windows that have not ended. What was passed may no longer hold, as after a change of the plan, so each line says
// when that was. It is nothing without any.
export function Thresholds({ still }: { still: boolean }) {
  const query = useList(
    '/v1/events',
    { query: { type: 'quota.threshold', limit: 100 } },
    { refetchInterval: still ? false : 30_000, retry: false },
  );
  const rows = passedLast(query.data?.data.data ?? [], serverNow()).slice(0, most);
  const { nameOf } = useNames(rows.flatMap((t) => (t.key_id ? [{ id: t.key_id }] : [])));
  if (rows.length === 0) return null;
  return (
    <Panel
      flush
      className="lg:col-span-2"
      title="Quotas that passed a threshold"
      actions={
        <Link to="/events" search={{ type: 'quota.threshold' }} className="link">
          All of 7 days
        </Link>
      }>
      <Table
        label="Quotas that passed a threshold"
        rows={rows}
        rowKey={windowKey}
        skeletons={0}
        empty={null}
        columns={[
          {
            title: 'Owner or key',
            className: 'w-full max-w-0',
            cell: (t) => (
              <div className="grid grid-cols-[minmax(0,1fr)] gap-x-4 wrap-anywhere @2xl:grid-cols-2">
                <Whose of={t} name={nameOf} />
                <span className="text-muted">
                  <code className="font-mono text-sm">
                    {t.plan}.{t.limit}
                  </code>{' '}
                  passed {t.percent} % of {amountWords(t.meter, t.count)} at <Moment at={t.at} />
                </span>
              </div>
            ),
          },
          { title: 'Resets', number: true, cell: (t) => (t.window_end ? <Time at={t.window_end} /> : 'never') },
        ]}
      />
    </Panel>
  );
}

function Whose({ of: t, name }: { of: Threshold; name: (id: string) => string }) {
  if (!t.key_id && t.owner_id)
    return (
      <Link to="/owners/$ownerId" params={{ ownerId: t.owner_id }} className="row-link link">
        <bdi>{t.owner ?? t.owner_id}</bdi>
      </Link>
    );
  if (!t.key_id) return <span className="text-muted">–</span>;
  return (
    <Link to="/keys/$keyId" params={{ keyId: t.key_id }} className="row-link link">
      <bdi>{name(t.key_id)}</bdi>
      {t.owner && (
        <span className="text-muted">
          {' '}
          of <bdi>{t.owner}</bdi>
        </span>
      )}
    </Link>
  );
}
