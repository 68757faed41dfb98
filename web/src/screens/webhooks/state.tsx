import { useEffect, useState } from 'react';
import { type Schemas, serverNow } from '../../api/client';
import { count } from '../../lib/format';
import { exact, relative, timeOfDay } from '../../lib/time';
import { Status, type Tone } from '../../ui/basic';
import type { IconName } from '../../ui/icon';

export type Delivery = Schemas['Delivery'];
export type Attempt = Schemas['Attempt'];
export type Webhook = Schemas['Webhook'];

const states: Record<Delivery['state'], [Tone, IconName, string]> = {
  pending: ['info', 'clock', 'Pending'],
  retry_scheduled: ['warn', 'refresh', 'Retrying'],
  delivered: ['ok', 'check', 'Delivered'],
  failed: ['bad', 'cross', 'Failed'],
};
export const stateNames = Object.entries(states).map(([value, [, , label]]) => ({ value, label }));

// DeliveryState shows the state of a delivery. In a table it always has the width of its longest text, as EndpointState
// and Countdown have, so that no column moves when the state changes.
export function DeliveryState({ state }: { state: Delivery['state'] }) {
  const [tone, icon, word] = states[state];
  return (
    <span className="inline-block [td_&]:min-w-24">
      <Status tone={tone} icon={icon}>
        {word}
      </Status>
    </span>
  );
}

export function EndpointState({ record }: { record: Webhook }) {
  return <span className="inline-block [td_&]:min-w-46">{endpointState(record)}</span>;
}

function endpointState(record: Webhook) {
  if (record.state === 'disabled')
    return (
      <Status tone="bad" icon="stop">
        Disabled
      </Status>
    );
  if (record.paused_until)
    return (
      <Status tone="warn" icon="clock">
        Paused until{' '}
        <time dateTime={record.paused_until} title={exact(record.paused_until)} className="whitespace-nowrap tabular-nums">
          {timeOfDay(record.paused_until)}
        </time>
      </Status>
    );
  return <Status tone="ok">Active</Status>;
}

export const triggers: Record<Delivery['trigger'], string> = {
  event: 'the event',
  manual: 'redelivered by hand',
  recover: 'recovery of failed deliveries',
  test: 'a test',
};

export const succeeded = (a: Attempt): boolean => a.status !== null && a.status >= 200 && a.status < 300 && a.error === null;

// outcome is the result of an attempt in a few words.
export const outcome = (a: Attempt): string =>
  [a.status === null ? null : `status ${a.status}`, a.error].filter(Boolean).join(', ') || 'no response';

// lasted is how long an attempt took, which the API gives in whole milliseconds.
export function lasted(a: Attempt): string {
  const ms = Number(a.duration_ms);
  return ms < 1 ? '< 1 ms' : ms < 10_000 ? `${count(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export function Outcome({ attempt }: { attempt: Attempt }) {
  return <Status tone={succeeded(attempt) ? 'ok' : 'bad'}>{attempt.status ?? 'No response'}</Status>;
}

// Countdown shows, to the second, how far a time is.
export function Countdown({ at }: { at: string | null }) {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    if (!at) return;
    const timer = setInterval(() => setNow(serverNow()), 1_000);
    return () => clearInterval(timer);
  }, [at]);
  if (!at) return <span className="text-muted">–</span>;
  const seconds = Math.ceil((Date.parse(at) - now) / 1000);
  const text =
    seconds <= 0
      ? 'due'
      : seconds < 120
        ? `in ${seconds} s`
        : seconds < 3600
          ? `in ${Math.floor(seconds / 60)} min ${seconds % 60} s`
          : relative(Date.parse(at), now);
  return (
    <time dateTime={at} title={exact(at)} className="whitespace-nowrap tabular-nums [td_&]:inline-block [td_&]:min-w-[14ch]">
      {text}
    </time>
  );
}
