import { useState } from 'react';
import { api, type Schemas } from '../../api/client';
import { changed, useList } from '../../api/hooks';
import type { Issuer } from '../../api/issuers';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { quote } from '../../lib/shell';
import { useUrl } from '../../lib/url';
import { AsCode } from '../../ui/ascode';
import { Button, Empty, Moment, Panel, Time } from '../../ui/basic';
import { ConfirmDialog } from '../../ui/dialog';
import { SelectField, TextField } from '../../ui/form';
import { FormDialog } from '../../ui/formdialog';
import { PagedTable } from '../../ui/table';
import { toast } from '../../ui/toast';

type Denial = Schemas['Denial'];

const list = '/v1/issuers/{issuer_id}/denials';

// whatOf says in words which tokens a denial refuses.
const whatOf = (d: Denial) =>
  d.subject !== null ? `Subject ${d.subject}` : d.jti !== null ? `Token ${d.jti}` : `All issued before ${d.issued_before ?? ''}`;

// Denials lists what refuses tokens of an issuer before they expire.
export function Denials({ issuer }: { issuer: Issuer }) {
  const [{ cursor }] = useUrl<'cursor'>();
  const path = { issuer_id: issuer.issuer_id };
  const query = useList(list, { path, query: { cursor, limit: 20 } }, { refetchInterval: 15_000 });
  const write = useRefusal('write', `issuers/${issuer.issuer_id}/denials`);
  const admin = useRefusal('admin', 'issuers');
  const [open, setOpen] = useState<'deny' | Denial | null>(null);
  return (
    <Panel
      flush
      title="Denials"
      actions={
        <Button size="sm" icon="stop" why={write} onClick={() => setOpen('deny')}>
          Deny tokens
        </Button>
      }>
      <PagedTable
        plain
        label="Denials"
        query={query}
        rowKey={(d) => d.denial_id}
        empty={
          <Empty icon="stop" title="No denials">
            A denial refuses tokens before they expire: those of a subject, one token, or all that were issued before some time.
          </Empty>
        }
        columns={[
          {
            title: 'Refused',
            className: 'w-1/2 max-w-0 min-w-28',
            cell: (d) => (
              <span className="block truncate" title={whatOf(d)}>
                <bdi>{whatOf(d)}</bdi>
              </span>
            ),
          },
          {
            title: 'Reason',
            className: 'w-1/2 max-w-0 hidden @lg:table-cell',
            cell: (d) => (
              <span className="block truncate text-muted" title={d.reason ?? undefined}>
                <bdi>{d.reason ?? '–'}</bdi>
              </span>
            ),
          },
          { title: 'Until', className: 'hidden @md:table-cell', cell: (d) => <Moment at={d.until} /> },
          { title: 'Created', number: true, className: 'hidden @2xl:table-cell', cell: (d) => <Time at={d.created_at} /> },
          {
            title: <span className="sr-only">Action</span>,
            cell: (d) => (
              <Button size="sm" why={admin} onClick={() => setOpen(d)}>
                Lift
              </Button>
            ),
          },
        ]}
      />
      {open === 'deny' && <Deny issuer={issuer} refused={write} onClose={() => setOpen(null)} />}
      {open !== null && open !== 'deny' && <Lift issuer={issuer} denial={open} onClose={() => setOpen(null)} />}
    </Panel>
  );
}

type Kind = 'subject' | 'jti' | 'issued_before';
const kinds: Record<Kind, { label: string; option: string; placeholder: string; hint: string }> = {
  subject: { label: 'Subject', option: 'Of a subject', placeholder: 'user-42', hint: 'The claim sub of its tokens' },
  jti: { label: 'Identifier', option: 'One token', placeholder: '8b1f', hint: 'The claim jti of the token' },
  issued_before: {
    label: 'Issued before',
    option: 'All that were issued before a time',
    placeholder: '2026-03-01T12:00:00Z',
    hint: 'Tokens that do not say when they were issued are refused as well.',
  },
};

function Deny({ issuer, refused, onClose }: { issuer: Issuer; refused: string | null; onClose: () => void }) {
  const form = useForm({ kind: 'subject' as Kind, value: '', until: '', reason: '' });
  const v = form.values;
  const body = {
    [v.kind]: v.kind === 'issued_before' ? v.value.trim() : v.value,
    ...(v.until.trim() && { until: v.until.trim() }),
    ...(v.reason.trim() && { reason: v.reason.trim() }),
  };
  const submit = () =>
    form.submit(async () => {
      await api.post(list, { path: { issuer_id: issuer.issuer_id }, body });
      toast('The tokens are refused on every node');
      await changed('/v1/issuers');
      onClose();
    });
  const cli = [
    `keygate issuers deny ${quote(issuer.name)}`,
    `--${v.kind.replace('_', '-')} ${quote(v.value)}`,
    v.until.trim() && `--until ${quote(v.until.trim())}`,
    v.reason.trim() && `--reason ${quote(v.reason.trim())}`,
  ]
    .filter(Boolean)
    .join(' ');
  const kind = kinds[v.kind];
  return (
    <FormDialog
      title={`Deny tokens of “${issuer.name}”`}
      form={form}
      submit={submit}
      command={{ cli, method: 'POST', path: `/v1/issuers/${issuer.issuer_id}/denials`, body }}
      label="Deny the tokens"
      why={refused}
      onClose={onClose}>
      <SelectField
        label="Tokens"
        value={v.kind}
        onChange={(k) => form.set('kind', k as Kind)}
        options={(Object.keys(kinds) as Kind[]).map((value) => ({ value, label: kinds[value].option }))}
      />
      <TextField
        label={kind.label}
        required
        mono
        placeholder={kind.placeholder}
        hint={kind.hint}
        value={v.value}
        onChange={(t) => form.set('value', t)}
        error={form.fieldError(v.kind)}
      />
      <TextField
        label="Until"
        optional
        mono
        placeholder="2026-03-02T12:00:00Z"
        hint={`When every token of now has expired (${issuer.max_lifetime}), if this is empty`}
        value={v.until}
        onChange={(t) => form.set('until', t)}
        error={form.fieldError('until')}
      />
      <TextField
        label="Reason"
        optional
        maxLength={255}
        value={v.reason}
        onChange={(t) => form.set('reason', t)}
        error={form.fieldError('reason')}
      />
      <p className="text-sm text-muted">
        When this succeeds every node refuses them, and their streams are cut. The issuer can still issue others: bar the user there as
        well.
      </p>
    </FormDialog>
  );
}

function Lift({ issuer, denial, onClose }: { issuer: Issuer; denial: Denial; onClose: () => void }) {
  const path = { issuer_id: issuer.issuer_id, denial_id: denial.denial_id };
  const run = async () => {
    await api.delete('/v1/issuers/{issuer_id}/denials/{denial_id}', { path });
    toast('The denial is lifted');
    await changed('/v1/issuers');
  };
  return (
    <ConfirmDialog title="Lift the denial" action="Lift the denial" onClose={onClose} run={run}>
      <p>
        <b>
          <bdi>{whatOf(denial)}</bdi>
        </b>
        : these tokens are valid again until they expire.
      </p>
      <div>
        <AsCode
          command={{
            cli: `keygate issuers lift ${quote(issuer.name)} ${denial.denial_id}`,
            method: 'DELETE',
            path: `/v1/issuers/${issuer.issuer_id}/denials/${denial.denial_id}`,
          }}
        />
      </div>
    </ConfirmDialog>
  );
}
