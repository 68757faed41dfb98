import type { UseQueryResult } from '@tanstack/react-query';
import { useCanGoBack, useRouter } from '@tanstack/react-router';
import { type KeyboardEvent, type MouseEvent, type ReactNode, useId } from 'react';
import type { Answer } from '../api/client';
import { useUrl } from '../lib/url';
import { Button, Failure, Skeleton } from './basic';

export interface Column<T> {
  title: ReactNode;
  cell: (row: T) => ReactNode;
  number?: boolean; // right-aligned
  // Of head and cells. "hidden @2xl:table-cell" leaves a column out where the table is narrow, "w-full max-w-0"
  // gives it what the others leave, and cuts its text off there.
  className?: string;
}

interface TableProps<T> {
  label: string; // what the table lists, for screen readers
  columns: Column<T>[];
  rows: T[] | undefined; // undefined while they are loaded
  rowKey: (row: T) => string;
  empty: ReactNode;
  skeletons?: number;
  selected?: string; // the key of the marked row
  plain?: boolean; // the rows lead nowhere
}

// Table is a plain table. The link with the class row-link of a row covers the row. Arrow keys, Home and End move between the rows.
export function Table<T>({ label, columns, rows, rowKey, empty, skeletons = 8, selected, plain }: TableProps<T>) {
  const name = useId();
  if (rows?.length === 0) return <>{empty}</>;
  const cell = (c: Column<T>) =>
    `px-3 first:pl-4 last:pr-4 ${c.number ? 'text-right whitespace-nowrap' : 'text-left'} ${c.className ?? ''}`;
  if (!rows) return <Waiting label={label} rows={skeletons} columns={columns.length} />;
  return (
    <div className="@container relative overflow-x-auto">
      {plain && (
        <span id={name} hidden>
          {label}
        </span>
      )}
      <table {...(plain ? { 'aria-labelledby': name } : { 'aria-label': label })} className="w-full border-collapse" onKeyDown={moveRow}>
        <thead>
          <tr className="h-8 border-b border-line text-sm text-muted">
            {columns.map((c, i) => (
              <th key={i} scope="col" className={`font-medium whitespace-nowrap ${cell(c)}`}>
                {c.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr
              key={rowKey(r)}
              aria-current={selected === rowKey(r) || undefined}
              onClick={openRow}
              className="h-9 border-b border-line last:border-0 focus-within:bg-hover hover:bg-hover aria-[current]:bg-accent-soft">
              {columns.map((c, i) => (
                <td key={i} className={`py-1.5 align-middle ${cell(c)}`}>
                  {c.cell(r)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// Waiting is shown while a table loads. It has no heads, because they would move once the widths of the columns
// are known.
function Waiting({ label, rows, columns }: { label: string; rows: number; columns: number }) {
  return (
    <div role="status" aria-label={`${label}: loading`}>
      {Array.from({ length: rows + 1 }, (_, n) => (
        <div key={n} className={`flex items-center gap-6 border-b border-line px-4 last:border-0 ${n === 0 ? 'h-8' : 'h-9'}`}>
          {Array.from({ length: Math.min(columns, 4) }, (__, i) => (
            <span key={i} className="flex-1">
              <Skeleton className={n === 0 ? 'h-2.5 w-12' : 'h-3.5 w-24'} />
            </span>
          ))}
        </div>
      ))}
    </div>
  );
}

// openRow follows the link of a row after a click on what lies above it and does nothing itself.
function openRow(e: MouseEvent<HTMLTableRowElement>) {
  const { target, ctrlKey, metaKey, shiftKey } = e;
  if (!(target instanceof Element) || !e.currentTarget.contains(target) || target.closest('a, button, input, select, summary')) return;
  const link = e.currentTarget.querySelector('.row-link');
  link?.dispatchEvent(new window.MouseEvent('click', { bubbles: true, cancelable: true, ctrlKey, metaKey, shiftKey }));
}

function moveRow(e: KeyboardEvent<HTMLTableElement>) {
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[e.key];
  if (step === undefined || (e.target as HTMLElement).matches('input, select, textarea')) return;
  const rows = [...e.currentTarget.tBodies[0]!.rows];
  const at = rows.findIndex((r) => r.contains(e.target as Node));
  const to = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  const target = to?.querySelector<HTMLElement>('.row-link') ?? to?.querySelector<HTMLElement>('a, button');
  if (target) {
    e.preventDefault();
    target.focus();
  }
}

interface PagedProps<T> extends Omit<TableProps<T>, 'rows'> {
  query: UseQueryResult<Answer<{ data: T[]; next_cursor: string | null }>>;
  ready?: boolean; // false: the rows wait for something else that they show
}

// PagedTable shows one page of a list and the way to the others. The page is in the URL (cursor).
export function PagedTable<T>({ query, ready = true, ...table }: PagedProps<T>) {
  const [{ cursor }, change] = useUrl<'cursor'>();
  const router = useRouter();
  const canGoBack = useCanGoBack(); // not on a page that a copied link opened
  const page = query.data?.data;
  const failure = query.error && (
    <div className="p-4">
      <Failure error={query.error} retry={() => void query.refetch()} />
    </div>
  );
  if (failure && !page) return failure;
  const next = page?.next_cursor;
  return (
    <>
      {failure}
      <Table {...table} rows={ready ? page?.data : undefined} />
      {(cursor || next) && (
        <nav aria-label="Pages" className="flex items-center justify-end gap-2 border-t border-line px-4 py-2">
          {cursor && (
            <Button size="sm" icon="left" onClick={() => change({ cursor: undefined })}>
              First page
            </Button>
          )}
          {cursor && canGoBack && (
            <Button size="sm" onClick={() => router.history.back()}>
              Back
            </Button>
          )}
          <Button size="sm" disabled={!next || query.isPlaceholderData} onClick={() => change({ cursor: next ?? undefined })}>
            Next page
          </Button>
        </nav>
      )}
    </>
  );
}
