import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { Answer } from '../api/client';
import { Failure, Panel } from './basic';
import { type Column, Table } from './table';

// ListPanel is a panel with the first rows of a list. Its title is also what the table lists.
export function ListPanel<T>({
  title,
  actions,
  query,
  ...table
}: {
  title: string;
  actions: ReactNode; // such as the way to the whole list
  query: UseQueryResult<Answer<{ data: T[] }>>;
  columns: Column<T>[];
  rowKey: (row: T) => string;
  empty: ReactNode;
}) {
  return (
    <Panel flush title={title} actions={actions}>
      {query.error ? (
        <div className="p-4">
          <Failure error={query.error} retry={() => void query.refetch()} />
        </div>
      ) : (
        <Table label={title} rows={query.data?.data.data} skeletons={3} {...table} />
      )}
    </Panel>
  );
}
