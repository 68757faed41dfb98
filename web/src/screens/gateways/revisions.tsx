import { useEffect, useState } from 'react';
import { api, type Answer, ApiError, type Schemas } from '../../api/client';
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
  const query = useList('/v1/gateways/{gateway_id}/revisions', { path, query: { cursor: url.cursor, limit: 25 } }, { refetchInterval: 30_000 });
  const refused = useRefusal('write', `gateways/${gatewayId}`);
  const [restoring, setRestoring] = useState<Revision | null>(null);
  const [reading, setReading] = useState<Revision | null>(null);
  const current = gateway.data?.data.revision;
  return (
    <>
      <Panel flush>
        <PagedTable label="Revisions" skeletons={3} query={query} rowKey={(r: Revision) => r.revision_id} columns={[
          { title: 'Number', cell: (r) => <span className="font-medium">{r.number}{r.number === current && <span className="ml-2 text-sm text-ok">in force</span>}</span> },
          { title: 'When', cell: (r) => <Time at={r.created_at} /> },
          { title: 'From', cell: (r) => <span>{r.source}<span className="text-muted"> · {r.kind === 'spec' ? 'document' : 'file'}</span></span> },
          { title: 'Author', className: 'max-w-48 hidden md:table-cell', cell: (r) => <span className="block truncate" title={r.author}>{r.author}</span> },
          { title: 'Commit', className: 'hidden lg:table-cell', cell: (r) => (r.commit ? <code className="font-mono text-sm" title={r.commit}>{r.commit.slice(0, 10)}</code> : '–') },
          { title: 'Routes', className: 'hidden sm:table-cell', cell: (r) => <span className="font-mono text-sm"><span className="text-ok">+{r.added}</span> <span className="text-bad">−{r.removed}</span> <span className="text-warn">~{r.changed}</span></span> },
          {
            title: <span className="sr-only">Actions</span>, number: true,
            cell: (r) => (
              <span className="inline-flex gap-1">
                <Button size="sm" onClick={() => change({ from: String(r.number - 1), to: String(r.number) })}>Compare</Button>
                <Button size="sm" kind="quiet" onClick={() => setReading(r)}>Read</Button>
                {r.number !== current && <Button size="sm" why={refused} onClick={() => setRestoring(r)}>Roll back</Button>}
              </span>
            ),
          },
        ]} empty={<Empty icon="branch" title="No revisions yet">Each push of a document or configuration file that changes something is a revision.</Empty>} />
      </Panel>
      {url.to && !query.isPending && <Compare gatewayId={gatewayId} from={url.from ?? '0'} to={url.to} newest={current ?? Number(url.to)} onChange={(c) => change(c)} />}
      {restoring && <Restore gatewayId={gatewayId} revision={restoring} onClose={() => setRestoring(null)} />}
      {reading && <Content gatewayId={gatewayId} revision={reading} onClose={() => setReading(null)} />}
    </>
  );
}

function Compare({ gatewayId, from, to, newest, onChange }: { gatewayId: string; from: string; to: string; newest: number; onChange: (c: { from?: string; to?: string }) => void }) {
  const query = useRecord('/v1/gateways/{gateway_id}/revisions/{number}/diff', { path: { gateway_id: gatewayId, number: to }, query: { from } }, { retry: false });
  const number = (label: string, value: string, least: number, set: (v: string) => void) => (
    <label className="flex items-center gap-2">{label}
      <input type="number" min={least} max={newest} value={value} onChange={(e) => set(e.target.value)} className="h-7 w-20 rounded-md border border-line-strong bg-surface px-2" />
    </label>
  );
  return (
    <Panel title="Compare" actions={<>
      {number('From', from, 0, (v) => onChange({ from: v, to }))}
      {number('to', to, 1, (v) => onChange({ from, to: v }))}
      <Button size="sm" kind="quiet" onClick={() => onChange({ from: undefined, to: undefined })}>Close</Button>
    </>}>
      {query.error ? <Failure error={query.error} /> : query.data ? <Difference push={query.data.data} /> : <Skeleton className="h-24 w-full" />}
    </Panel>
  );
}

// Restore shows what a rollback changes before it is done.
function Restore({ gatewayId, revision, onClose }: { gatewayId: string; revision: Revision; onClose: () => void }) {
  const path = { gateway_id: gatewayId, number: revision.number };
  const [preview, setPreview] = useState<Answer<Schemas['Push']> | null>(null);
  const [error, setError] = useState<unknown>(null);
  const repository = useRecord('/v1/gateways/{gateway_id}/repository', { path: { gateway_id: gatewayId } }, { retry: false });
  useEffect(() => {
    const call = '/v1/gateways/{gateway_id}/revisions/{number}/rollback' as const;
    const stop = new AbortController();
    const options = { path: { gateway_id: gatewayId, number: revision.number }, signal: stop.signal };
    api.post(call, { ...options, query: { dry_run: true, effect: true } })
      .catch((e: unknown) => {
        // A key that may roll back need not be allowed to see traffic.
        if (e instanceof ApiError && e.status === 403) return api.post(call, { ...options, query: { dry_run: true } });
        throw e;
      })
      .then((a) => setPreview(a as Answer<Schemas['Push']>), (e: unknown) => {
        if (!stop.signal.aborted) setError(e);
      });
    return () => stop.abort();
  }, [gatewayId, revision.number]);
  return (
    <ConfirmDialog title={`Roll back to revision ${revision.number}`} action="Roll back" onClose={onClose} run={async () => {
      const { data } = await api.post('/v1/gateways/{gateway_id}/revisions/{number}/rollback', { path });
      toast(data.revision ? `Revision ${data.revision} has the content of revision ${revision.number}` : 'Nothing has changed');
      await changed('/v1/gateways');
    }}>
      <p>Its content becomes a new revision, limits included.</p>
      {repository.data && <p className="rounded-md bg-warn-soft px-3 py-2">The repository that this gateway follows is then paused, until you resume it.</p>}
      {error !== null ? <Failure error={error} /> : preview ? <div className="max-h-96 overflow-y-auto"><Difference push={preview.data} /></div> : <Skeleton className="h-24 w-full" />}
      <div><AsCode command={{ cli: `keygate spec rollback --gateway ${gatewayId} ${revision.number}`, method: 'POST', path: `/v1/gateways/${gatewayId}/revisions/${revision.number}/rollback` }} /></div>
    </ConfirmDialog>
  );
}

function Content({ gatewayId, revision, onClose }: { gatewayId: string; revision: Revision; onClose: () => void }) {
  const query = useRecord('/v1/gateways/{gateway_id}/revisions/{number}/content', { path: { gateway_id: gatewayId, number: revision.number } }, { retry: false, gcTime: 0 });
  const text = query.data ? (typeof query.data.data === 'string' ? query.data.data : JSON.stringify(query.data.data, null, 2)) : '';
  return (
    <Dialog title={`Revision ${revision.number}`} wide onClose={onClose}>
      {query.error ? <Failure error={query.error} /> : query.data ? <Code text={text} label={`Revision ${revision.number}`} /> : <Skeleton className="h-60 w-full" />}
    </Dialog>
  );
}
