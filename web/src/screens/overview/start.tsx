import { Link } from '@tanstack/react-router';
import { useCallLine } from '../../api/address';
import { useFirstCall } from '../../api/firstcall';
import { useGateways } from '../../api/gateways';
import { useList, useRecord } from '../../api/hooks';
import { sinceOf, sum } from '../../lib/traffic';
import { buttonClass, Code, Page, Panel } from '../../ui/basic';
import { ForwardEverything } from '../../ui/forward';
import { Icon } from '../../ui/icon';

// Start is the overview of an empty installation: three steps to the first call. Each is ticked off as it
// is done; after the first gateway, StartSteps stands above the overview until there was a call.
export function Start() {
  return (
    <Page title="Welcome to Keygate">
      <p className="text-muted">Three steps, and your service is behind a gateway.</p>
      <StartSteps />
    </Page>
  );
}

// StartSteps shows what is left to do until the first call, and nothing after it.
export function StartSteps() {
  const callLine = useCallLine();
  const { gateways, loaded } = useGateways();
  const keys = useList('/v1/keys', { query: { level: 'gateway', state: 'active', limit: 1 } }, { refetchInterval: 10_000 });
  const traffic = useRecord('/v1/reports/traffic', { query: { since: sinceOf('7d'), interval: '1h' } }, { refetchInterval: 2_000 });
  const rows = traffic.data?.data.data;
  const key = keys.data?.data.data[0];
  const gateway = gateways.find((g) => g.default) ?? gateways[0];
  const { call, none, pending } = useFirstCall(gateway?.gateway_id);
  if (!loaded || pending || !keys.data || !rows || sum(rows, (r) => r.status_2xx) > 0) return null;
  const steps = [
    {
      title: 'Create a gateway',
      done: Boolean(gateway),
      text: 'It stands in front of an HTTP service. You need the address of that service, and its OpenAPI document if there is one.',
      action: (
        <Link to="/gateways/new" className={buttonClass('primary')}>
          Create a gateway
        </Link>
      ),
    },
    {
      title: 'Create a key',
      done: Boolean(key),
      text: 'Callers show it with each request. Its scope says what they may do.',
      action: (
        <Link to="/keys" search={{ create: '1' }} className={buttonClass(gateway ? 'primary' : 'plain')}>
          Create a key
        </Link>
      ),
    },
    {
      title: 'Make the first call',
      done: false,
      text: none
        ? `The gateway “${gateway?.name}” has no routes. Every request gets a 404 until it has one.`
        : 'Replace kg_… by your key. This page turns into the overview when the call has arrived.',
      action:
        gateway &&
        (none ? (
          <ForwardEverything gatewayId={gateway.gateway_id} />
        ) : (
          <div className="flex flex-col items-start gap-2">
            <div className="w-full">
              <Code label="The first call" text={callLine(gateway, 'kg_…', call)} wrap />
            </div>
            <Link to="/gateways/$gatewayId" params={{ gatewayId: gateway.gateway_id }} className="link">
              Or try it on the page of the gateway
            </Link>
          </div>
        )),
    },
  ];
  const next = steps.findIndex((s) => !s.done);
  return (
    <Panel>
      <ol className="flex flex-col gap-6">
        {steps.map((s, i) => (
          <li key={s.title} aria-current={i === next ? 'step' : undefined} className="flex gap-3">
            <span
              className={`flex size-6 shrink-0 items-center justify-center rounded-full text-sm font-semibold ${s.done ? 'bg-ok-soft text-ok' : i === next ? 'bg-accent text-on-accent' : 'bg-hover text-muted'}`}>
              {s.done ? (
                <>
                  <Icon name="check" />
                  <span className="sr-only">Done</span>
                </>
              ) : (
                i + 1
              )}
            </span>
            <div className="flex min-w-0 flex-1 flex-col items-start gap-2">
              <h2 className="text-lg font-semibold">{s.title}</h2>
              {!s.done && <p className="text-muted">{s.text}</p>}
              {i === next && <div className="w-full max-w-2xl">{s.action}</div>}
            </div>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
