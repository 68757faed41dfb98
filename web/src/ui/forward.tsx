import { api } from '../api/client';
import { changed } from '../api/hooks';
import { useRefusal } from '../api/session';
import { useForm } from '../lib/form';
import { everything } from '../lib/route';
import { Button, Failure } from './basic';
import { toast } from './toast';

export const noRoutes = 'This gateway has no routes. Every request gets a 404 until it has one.';

// ForwardEverything is a button that creates the route that forwards everything.
export function ForwardEverything({ gatewayId, className = '' }: { gatewayId: string; className?: string }) {
  const refused = useRefusal('write', `gateways/${gatewayId}/routes`);
  const form = useForm({});
  const create = () =>
    form.submit(async () => {
      await api.post('/v1/gateways/{gateway_id}/routes', { path: { gateway_id: gatewayId }, body: everything });
      toast('Everything is forwarded now');
      await changed('/v1/gateways');
    });
  return (
    <div className={`flex flex-col gap-2 ${className}`}>
      <span>
        <Button
          kind="primary"
          icon="plus"
          busy={form.busy}
          why={refused}
          title={refused ?? `Creates the route ${everything.path} for ${everything.methods.join(', ')}; callers need a key`}
          onClick={() => void create()}>
          Forward everything
        </Button>
      </span>
      {form.error && <Failure error={form.error} />}
    </div>
  );
}
