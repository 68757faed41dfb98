import { Link } from '@tanstack/react-router';
import { useRecord } from '../../api/hooks';
import { plural } from '../../lib/format';
import { Skeleton, Time } from '../../ui/basic';
import type { Health, Known } from './health';
import { type Delivery, Outcome } from './state';

// LastAttempt shows the outcome of the newest attempt. If it is not among the newest deliveries of the
// account, it is asked for.
export function LastAttempt({ webhookId, health, known: { loaded, refused } }: { webhookId: string; health: Health; known: Known }) {
  const query = useRecord('/v1/webhook-deliveries', { query: { webhook_id: webhookId, limit: 1 } }, { enabled: loaded && !health.last, staleTime: 60_000 });
  if (refused) return <NotAllowed why={refused} />;
  if (!loaded) return <Skeleton className="h-4 w-20" />;
  return <Last delivery={health.last ?? query.data?.data.data[0]} />;
}

const NotAllowed = ({ why }: { why: string }) => <span className="text-muted" title={why}>not allowed<span className="sr-only">: {why}</span></span>;

function Last({ delivery }: { delivery?: Delivery }) {
  const attempt = delivery?.attempts.at(-1);
  if (!delivery || !attempt) return <span className="text-muted">none yet</span>;
  return (
    <Link to="/deliveries/$deliveryId" params={{ deliveryId: delivery.delivery_id }} className="inline-flex items-center gap-2 whitespace-nowrap hover:underline">
      <Outcome attempt={attempt} /><Time at={attempt.started_at} />
    </Link>
  );
}

// FailedLately shows how many deliveries failed in the last 24 hours, and leads to them.
export function FailedLately({ webhookId, health, known: { loaded, refused } }: { webhookId: string; health: Health; known: Known }) {
  if (refused) return <NotAllowed why={refused} />;
  if (!loaded) return <Skeleton className="h-4 w-8" />;
  if (health.failed === 0) return <span className="text-muted">{health.more ? 'see the log' : '0'}</span>;
  return (
    <Link to="/webhooks/$webhookId" params={{ webhookId }} search={{ state: 'failed' }} className="font-medium text-bad hover:underline" aria-label={`${plural(health.failed, 'failed delivery', 'failed deliveries')} in the last 24 hours`}>
      {health.failed}{health.more && '+'}
    </Link>
  );
}
