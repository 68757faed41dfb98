import { keepPreviousData } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { Skeleton, Time } from '../../ui/basic';
import { dayAgo, type Health, type Known, latest } from './health';
import { type Delivery, Outcome } from './state';

// LastAttempt shows the outcome of the newest attempt. If it is not among the newest deliveries, which may all be
// waiting, the newest of each state that has attempts is asked for.
export function LastAttempt({ webhookId, health, known: { loaded, refused } }: { webhookId: string; health: Health; known: Known }) {
  const enabled = loaded && !health.last;
  const found = [
    useRecord(
      '/v1/webhook-deliveries',
      { query: { webhook_id: webhookId, state: 'retry_scheduled', limit: 1 } },
      { enabled, staleTime: 30_000 },
    ),
    useRecord('/v1/webhook-deliveries', { query: { webhook_id: webhookId, state: 'failed', limit: 1 } }, { enabled, staleTime: 30_000 }),
    useRecord('/v1/webhook-deliveries', { query: { webhook_id: webhookId, state: 'delivered', limit: 1 } }, { enabled, staleTime: 30_000 }),
  ].map((q) => q.data?.data.data);
  if (refused) return <NotAllowed why={refused} />;
  if (!loaded || (enabled && found.some((f) => f === undefined))) return <Skeleton className="h-4 w-20" />;
  return <Last delivery={health.last ?? latest(found.flatMap((f) => f ?? []))} />;
}

const NotAllowed = ({ why }: { why: string }) => (
  <span className="text-muted" title={why}>
    not allowed<span className="sr-only">: {why}</span>
  </span>
);

function Last({ delivery }: { delivery?: Delivery }) {
  const attempt = delivery?.attempts.at(-1);
  if (!delivery || !attempt) return <span className="text-muted">none yet</span>;
  return (
    <Link
      to="/deliveries/$deliveryId"
      params={{ deliveryId: delivery.delivery_id }}
      className="inline-flex items-center gap-2 whitespace-nowrap hover:underline">
      <Outcome attempt={attempt} />
      <Time at={attempt.started_at} />
    </Link>
  );
}

// FailedLately shows how many deliveries failed in the last 24 hours, and leads to them.
export function FailedLately({ webhookId, health, known: { loaded, refused } }: { webhookId: string; health: Health; known: Known }) {
  const since = dayAgo();
  const own = useRecord(
    '/v1/webhook-deliveries',
    { query: { webhook_id: webhookId, state: 'failed', since, limit: 100 } },
    { enabled: loaded && !health.counted, placeholderData: keepPreviousData, staleTime: 15_000 },
  ).data?.data;
  if (refused) return <NotAllowed why={refused} />;
  if (!loaded || (!health.counted && !own)) return <Skeleton className="h-4 w-8" />;
  const { failed, more } = own && !health.counted ? { failed: own.data.length, more: own.next_cursor !== null } : health;
  if (failed === 0) return <span className="text-muted">0</span>;
  return (
    <Link
      to="/webhooks/$webhookId"
      params={{ webhookId }}
      search={{ state: 'failed', since }}
      className="font-medium text-bad hover:underline">
      {failed}
      {more && '+'}
      <span className="sr-only"> failed in the last 24 hours</span>
    </Link>
  );
}
