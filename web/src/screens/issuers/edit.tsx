import { useNavigate, useParams } from '@tanstack/react-router';
import { type Answer, api } from '../../api/client';
import { changed, useRecord } from '../../api/hooks';
import type { Issuer } from '../../api/issuers';
import { useRefusal } from '../../api/session';
import { useEdit } from '../../lib/edit';
import { flagsOf, issuerFile, type IssuerValues, labels, show, updateBody, valuesOf } from '../../lib/issuer';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Failure, Page, Panel, Skeleton } from '../../ui/basic';
import { Conflict } from '../../ui/conflict';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { toast } from '../../ui/toast';
import { IssuerFields } from './form';

export default function EditIssuer() {
  const { issuerId } = useParams({ from: '/issuers/$issuerId/edit' });
  const query = useRecord('/v1/issuers/{issuer_id}', { path: { issuer_id: issuerId } });
  if (query.data) return <IssuerForm key={issuerId} first={query.data} />;
  return (
    <Page title="Edit an issuer">
      {query.error ? (
        <Failure error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Panel>
          <Skeleton className="h-96 w-full" />
        </Panel>
      )}
    </Page>
  );
}

// IssuerForm sends the fields that were touched, with the ETag of the record that it began with.
function IssuerForm({ first }: { first: Answer<Issuer> }) {
  const { issuer_id } = first.data;
  const path = { issuer_id };
  const navigate = useNavigate();
  const refused = useRefusal('admin', 'issuers');
  const form = useEdit<Issuer, IssuerValues>({ first, valuesOf, labels, show, read: () => api.get('/v1/issuers/{issuer_id}', { path }) });
  const body = updateBody(form.changes, form.values, form.base);
  const leave = () => navigate({ to: '/issuers/$issuerId', params: { issuerId: issuer_id } });
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/issuers/{issuer_id}', { path, body, ifMatch }),
      saved: async ({ data }) => {
        toast(`Issuer “${data.name}” was saved`);
        await changed('/v1/issuers');
        await leave();
      },
    });
  const cli = [`keygate issuers update ${quote(form.base.name)}`, ...flagsOf(body, form.values.name.trim())].join(' ');
  return (
    <Page title={`Edit “${form.base.name}”`}>
      <Form onSubmit={submit}>
        <IssuerFields form={form} />
        <SubmitBar>
          {form.conflict && <Conflict {...form.conflict} />}
          <Submit
            label="Save"
            busy={form.busy}
            error={form.rest}
            unchanged={!form.dirty}
            why={refused}
            disabled={form.conflict !== null}
            onCancel={() => void leave()}
            beside={
              <AsCode
                command={{ cli, method: 'PATCH', path: `/v1/issuers/${issuer_id}`, body, file: issuerFile(form.values) }}
                why={form.dirty ? null : 'Nothing has been changed yet.'}
              />
            }
          />
        </SubmitBar>
      </Form>
    </Page>
  );
}
