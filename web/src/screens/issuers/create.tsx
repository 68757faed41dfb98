import { useNavigate } from '@tanstack/react-router';
import { api } from '../../api/client';
import { changed } from '../../api/hooks';
import { useRefusal } from '../../api/session';
import { useForm } from '../../lib/form';
import { createBody, createFlags, issuerFile, newIssuer } from '../../lib/issuer';
import { quote } from '../../lib/shell';
import { AsCode } from '../../ui/ascode';
import { Page } from '../../ui/basic';
import { Form, Submit, SubmitBar } from '../../ui/form';
import { toast } from '../../ui/toast';
import { IssuerFields } from './form';

// CreateIssuer asks for an issuer. Its keys are fetched as soon as it is created.
export default function CreateIssuer() {
  const navigate = useNavigate();
  const refused = useRefusal('admin', 'issuers');
  const form = useForm(newIssuer);
  const body = createBody(form.values);
  const submit = () =>
    form.submit(async () => {
      const { data } = await api.post('/v1/issuers', { body });
      toast(`Issuer “${data.name}” is created`);
      await changed('/v1/issuers');
      await navigate({ to: '/issuers/$issuerId', params: { issuerId: data.issuer_id } });
    });
  const cli = [`keygate issuers create ${quote(String(body.name) || 'NAME')}`, ...createFlags(body)].join(' ');
  return (
    <Page title="Create an issuer">
      <Form onSubmit={submit}>
        <IssuerFields form={form} />
        <SubmitBar>
          <Submit
            beside={<AsCode command={{ cli, method: 'POST', path: '/v1/issuers', body, file: issuerFile(form.values) }} />}
            label="Create the issuer"
            busy={form.busy}
            error={form.rest}
            why={refused}
            onCancel={() => void navigate({ to: '/issuers' })}
          />
        </SubmitBar>
      </Form>
    </Page>
  );
}
