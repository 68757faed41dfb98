import { Link } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import { api, type Answer, ApiError, type Schemas } from '../../api/client';
import { dryRun } from '../../api/dryrun';
import { changed, useList, useRecord } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useUrl } from '../../lib/url';
import { AsCode } from '../../ui/ascode';
import { Button, Code, Empty, Failure, Panel, Skeleton, Time } from '../../ui/basic';
import { ConfirmDialog, Dialog } from '../../ui/dialog';
import { PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';
import { useGateway } from './detail';
import { Difference } from './difference';

type Revision = Schemas['Revision'];

// Revisions lists what was pushed, compares any two, and restores one.
export default function Revisions() {
  const { gatewayId, query: gateway } = useGateway();
  const [url, change] = useUrl<'cursor' | 'from' | 'to'>();
  const path = { gateway_id: gatewayId };
  const query = useList(
    '/v1/gateways/{gateway_id}/revisions',
    { path, query: { cursor: url.cursor, limit: 25 } },
    { refetchInterval: 30_000 },
  );
  const refused = useRefusal('write', `gateways/${gatewayId}`);
  const [restoring, setRestoring] = useState<Revision | null>(null);
  const [reading, setReading] = useState<Revision | null>(null);
  const current = gateway.data?.data.revision;
  // Another comparison stays on the page of the list.
  const compare = (c: { from?: string; to?: string }, replace?: boolean) => change({ cursor: url.cursor, ...c }, replace);
  return (
    <>
      <Panel flush>
        <PagedTable
          label="Revisions"
          skeletons={3}
          query={query}
          ready={!gateway.isPending} // the gateway says which revision is in force
          rowKey={(r: Revision) => r.revision_id}
          columns={[
            {
              title: 'Number',
              cell: (r) => (
                <span className="font-medium whitespace-nowrap">
                  <Link
                    to="/gateways/$gatewayId/revisions"
                    params={{ gatewayId }}
                    search={{ ...(url.cursor && { cursor: url.cursor }), from: String(r.number - 1), to: String(r.number) }}
                    resetScroll={false}
                    className="row-link link">
                    {r.number}
                  </Link>
                  {r.number === current && <span className="ml-2 text-sm text-ok">in force</span>}
                </span>
              ),
            },
            { title: 'When', cell: (r) => <Time at={r.created_at} /> },
            {
              title: 'From',
              className: 'hidden @xl:table-cell',
              cell: (r) => (
                <span className="whitespace-nowrap">
                  {r.source}
                  <span className="text-muted"> · {r.kind === 'spec' ? 'document' : 'file'}</span>
                </span>
              ),
            },
            {
              title: 'Author',
              className: 'w-full max-w-0 hidden @3xl:table-cell',
              cell: (r) => (
                <span className="block truncate" title={r.author}>
                  {r.author}
                </span>
              ),
            },
            {
              title: 'Commit',
              className: 'hidden @4xl:table-cell',
              cell: (r) =>
                r.commit ? (
                  <code className="font-mono text-sm" title={r.commit}>
                    {r.commit.slice(0, 10)}
                  </code>
                ) : (
                  '–'
                ),
            },
            {
              title: 'Routes',
              className: 'whitespace-nowrap hidden @2xl:table-cell',
              cell: (r) => (
                <span className="font-mono text-sm">
                  <span className={Number(r.added) > 0 ? 'text-ok' : 'text-muted'}>+{r.added}</span>{' '}
                  <span className={Number(r.removed) > 0 ? 'text-bad' : 'text-muted'}>−{r.removed}</span>{' '}
                  <span className={Number(r.changed) > 0 ? 'text-warn' : 'text-muted'}>~{r.changed}</span>
                </span>
              ),
            },
            {
              title: <span className="sr-only">Actions</span>,
              number: true,
              cell: (r) => (
                <span className="inline-flex flex-wrap justify-end gap-1 @lg:flex-nowrap">
                  <Button size="sm" onClick={() => compare({ from: String(r.number - 1), to: String(r.number) })}>
                    Compare
                  </Button>
                  <Button size="sm" kind="quiet" onClick={() => setReading(r)}>
                    Read
                  </Button>
                  {r.number !== current && (
                    <Button size="sm" why={refused} onClick={() => setRestoring(r)}>
                      Roll back
                    </Button>
                  )}
                </span>
              ),
            },
          ]}
          empty={
            <Empty icon="branch" title="No revisions yet">
              Each push of a document or configuration file that changes something is a revision.
            </Empty>
          }
        />
      </Panel>
      {url.to && !query.isPending && !gateway.isPending && (
        <Compare
          gatewayId={gatewayId}
          from={url.from ?? '0'}
          to={url.to}
          newest={current ?? Number(url.to)}
          onChange={(c) => compare(c, true)}
        />
      )}
      {restoring && <Restore gatewayId={gatewayId} revision={restoring} onClose={() => setRestoring(null)} />}
      {reading && <Content gatewayId={gatewayId} revision={reading} onClose={() => setReading(null)} />}
    </>
  );
}

function Compare({
  gatewayId,
  from,
  to,
  newest,
  onChange,
}: {
  gatewayId: string;
  from: string;
  to: string;
  newest: number;
  onChange: (c: { from?: string; to?: string }) => void;
}) {
  const query = useRecord(
    '/v1/gateways/{gateway_id}/revisions/{number}/diff',
    { path: { gateway_id: gatewayId, number: to }, query: { from } },
    { retry: false },
  );
  const panel = useRef<HTMLDivElement>(null);
  const shown = query.data && `${from} to ${to}`;
  // The comparison stands below the list, perhaps out of sight.
  useEffect(() => {
    if (shown && !panel.current?.contains(document.activeElement)) panel.current?.scrollIntoView({ block: 'nearest' });
  }, [shown]);
  return (
    <div ref={panel} className="scroll-mt-16">
      <Panel
        title="Compare"
        actions={
          <>
            <Numbered label="From" value={from} least={0} most={newest} onChange={(v) => onChange({ from: v, to })} />
            <Numbered label="to" value={to} least={1} most={newest} onChange={(v) => onChange({ from, to: v })} />
            <Button size="sm" kind="quiet" onClick={() => onChange({ from: undefined, to: undefined })}>
              Close
            </Button>
          </>
        }>
        {query.error ? (
          <Failure error={query.error} />
        ) : query.data ? (
          <Difference push={query.data.data} />
        ) : (
          <Skeleton className="h-24 w-full" />
        )}
      </Panel>
    </div>
  );
}

// Numbered takes the number of a revision. What is not one while it is typed changes nothing.
function Numbered({
  label,
  value,
  least,
  most,
  onChange,
}: {
  label: string;
  value: string;
  least: number;
  most: number;
  onChange: (v: string) => void;
}) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const valid = (t: string) => /^\d+$/.test(t) && Number(t) >= least && Number(t) <= most;
  return (
    <label className="flex items-center gap-2">
      {label}
      <input
        type="number"
        min={least}
        max={most}
        value={text}
        aria-invalid={!valid(text) || undefined}
        onChange={(e) => {
          setText(e.target.value);
          if (valid(e.target.value)) onChange(String(Number(e.target.value)));
        }}
        className="h-7 w-20 rounded-md border border-line-strong bg-surface px-2 aria-[invalid=true]:border-bad"
      />
    </label>
  );
}

// Restore shows what a rollback changes before it is done.
function Restore({ gatewayId, revision, onClose }: { gatewayId: string; revision: Revision; onClose: () => void }) {
  const path = { gateway_id: gatewayId, number: revision.number };
  const [preview, setPreview] = useState<{ push: Schemas['Push']; etag: string | null } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const repository = useRecord('/v1/gateways/{gateway_id}/repository', { path: { gateway_id: gatewayId } }, { retry: false });
  useEffect(() => {
    const call = '/v1/gateways/{gateway_id}/revisions/{number}/rollback' as const;
    const stop = new AbortController();
    const run = async () => {
      // Read first: a change after it is noticed when the rollback is done.
      const { etag } = await api.get('/v1/gateways/{gateway_id}', { path: { gateway_id: gatewayId }, signal: stop.signal });
      const { data } = (await dryRun((q) =>
        api.post(call, { path: { gateway_id: gatewayId, number: revision.number }, signal: stop.signal, query: q }),
      )) as Answer<Schemas['Push']>;
      setPreview({ push: data, etag });
    };
    run().catch((e: unknown) => {
      if (!stop.signal.aborted) setError(e);
    });
    return () => stop.abort();
  }, [gatewayId, revision.number]);
  return (
    <ConfirmDialog
      title={`Roll back to revision ${revision.number}`}
      action="Roll back"
      onClose={onClose}
      ready={preview !== null}
      run={async () => {
        const { data } = await api
          .post('/v1/gateways/{gateway_id}/revisions/{number}/rollback', { path, ifMatch: preview?.etag })
          .catch((e: unknown) => {
            if (e instanceof ApiError && e.status === 412)
              throw new ApiError(
                412,
                e.kind,
                'The gateway has changed since this was shown. Nothing was rolled back: close this, and look again.',
              );
            throw e;
          });
        toast(data.revision ? `Revision ${data.revision} has the content of revision ${revision.number}` : 'Nothing has changed');
        await changed('/v1/gateways');
      }}>
      <p>Its content becomes a new revision, limits included.</p>
      {repository.data && (
        <p className="rounded-md bg-warn-soft px-3 py-2">The repository that this gateway follows is then paused, until you resume it.</p>
      )}
      {error !== null ? (
        <Failure error={error} />
      ) : preview ? (
        <div className="max-h-96 overflow-y-auto">
          <Difference push={preview.push} />
        </div>
      ) : (
        <Skeleton className="h-24 w-full" />
      )}
      <div>
        <AsCode
          command={{
            cli: `keygate spec rollback --gateway ${gatewayId} ${revision.number}`,
            method: 'POST',
            path: `/v1/gateways/${gatewayId}/revisions/${revision.number}/rollback`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}

function Content({ gatewayId, revision, onClose }: { gatewayId: string; revision: Revision; onClose: () => void }) {
  const query = useRecord(
    '/v1/gateways/{gateway_id}/revisions/{number}/content',
    { path: { gateway_id: gatewayId, number: revision.number } },
    { retry: false, gcTime: 0 },
  );
  const text = query.data ? (typeof query.data.data === 'string' ? query.data.data : JSON.stringify(query.data.data, null, 2)) : '';
  return (
    <Dialog title={`Revision ${revision.number}`} wide onClose={onClose}>
      {query.error ? (
        <Failure error={query.error} />
      ) : query.data ? (
        <Code text={text} label={`Revision ${revision.number}`} />
      ) : (
        <Skeleton className="h-60 w-full" />
      )}
    </Dialog>
  );
}
