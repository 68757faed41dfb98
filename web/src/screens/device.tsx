import { useState } from 'react';
import { api, type Schemas } from '../api/client';
import { useAccount } from '../api/session';
import { useForm } from '../lib/form';
import { Button, Details, Empty, Failure, Page, Panel, Time } from '../ui/basic';
import { Form, Submit, TextField } from '../ui/form';
import { roles, type User } from './users/parts';

type Device = Schemas['Device'];

// DevicePage is where a user types the code of a command line on another machine. No link has the code in it, so nobody is led to
// approve a machine that is not theirs.
export default function DevicePage() {
  const account = useAccount();
  const form = useForm({ user_code: '' });
  const decision = useForm({});
  const [device, setDevice] = useState<Device | null>(null);
  const user = account?.user as User | null | undefined;
  if (account && !user)
    return (
      <Page title="Sign in a device">
        <Panel>
          <Empty icon="stop" title="Not allowed">
            A device gets the rights of a user. You have signed in with a key: sign out, and sign in through the identity provider.
          </Empty>
        </Panel>
      </Page>
    );
  if (device && device.state !== 'pending')
    return (
      <Page title="Sign in a device">
        <Panel>
          <Empty icon={device.state === 'approved' ? 'user' : 'stop'} title={device.state === 'approved' ? 'Approved' : 'Denied'}>
            {device.state === 'approved'
              ? 'The command line goes on within some seconds. Its token lasts 12 hours, and is listed with your user.'
              : 'The command line gets no token.'}
          </Empty>
        </Panel>
      </Page>
    );
  const look = () =>
    form.submit(async () => {
      const { data } = await api.get('/v1/session/device', { query: { user_code: form.values.user_code.trim() } });
      setDevice(data);
    });
  const decide = (approve: boolean) =>
    decision.submit(async () => {
      const { data } = await api.post('/v1/session/device/approve', { body: { user_code: device!.user_code, approve } });
      setDevice(data);
    });
  const failed = decision.rest();
  if (device)
    return (
      <Page title="Sign in a device">
        <Panel title="Is this your machine?">
          <Details
            rows={[
              ['Code', <code key="code">{device.user_code}</code>],
              ['Address', <bdi key="address">{device.address}</bdi>],
              ['Machine', device.machine ? <bdi key="machine">{device.machine}</bdi> : 'it does not say'],
              ['Began', <Time key="began" at={device.created_at} />],
              ['It may', user ? roles[user.role].may : ''],
            ]}
          />
          <p className="mt-4 text-sm text-muted">
            The machine says its name itself. Approve only what you have just begun with keygate login --device: if somebody has sent you
            the code, deny it.
          </p>
          {failed && (
            <div className="mt-4">
              <Failure error={failed} />
            </div>
          )}
          <div className="mt-4 flex flex-wrap gap-2">
            <Button kind="primary" disabled={decision.busy} onClick={() => void decide(true)}>
              Approve
            </Button>
            <Button kind="danger" disabled={decision.busy} onClick={() => void decide(false)}>
              Deny
            </Button>
          </div>
        </Panel>
      </Page>
    );
  return (
    <Page title="Sign in a device">
      <Panel title="Type the code">
        <Form onSubmit={look}>
          <TextField
            label="Code"
            mono
            required
            autoComplete="off"
            placeholder="WDJB-MJHT"
            value={form.values.user_code}
            onChange={(t) => form.set('user_code', t)}
            error={form.fieldError('user_code')}
            hint="keygate login --device shows it in its terminal."
          />
          <Submit label="Go on" busy={form.busy} error={form.rest} />
        </Form>
      </Panel>
    </Page>
  );
}
