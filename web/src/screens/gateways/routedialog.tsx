import type { ReactNode } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useEdit } from '../../lib/edit';
import { AsCode } from '../../ui/ascode';
import { Conflict } from '../../ui/conflict';
import { Dialog } from '../../ui/dialog';
import { Submit } from '../../ui/form';
import { toast } from '../../ui/toast';

type Route = Schemas['Route'];

// RouteEdit says what a dialog edits of a route.
interface RouteEdit<V> {
  first: Answer<Route>;
  valuesOf: (r: Route) => V;
  labels: { [K in keyof V]?: string };
  show?: (value: V[keyof V]) => string;
}

// useRouteEdit is the form of a RouteDialog.
export const useRouteEdit = <V extends Record<string, unknown>>({ first, ...edit }: RouteEdit<V>) =>
  useEdit({
    first,
    ...edit,
    read: () => api.get('/v1/gateways/{gateway_id}/routes/{route_id}', { path: idOf(first.data) }),
    othersKept: true,
  });

const idOf = ({ gateway_id, route_id }: Route) => ({ gateway_id, route_id });

interface RouteDialogProps<V extends Record<string, unknown>> {
  title: string;
  route: Route;
  form: ReturnType<typeof useRouteEdit<V>>;
  body: object; // what is sent
  flags: string; // that do the same in the command line
  done: string; // what is said when it is saved
  onClose: () => void;
  children: ReactNode;
}

// RouteDialog edits some fields of a route, and closes when they are saved.
export function RouteDialog<V extends Record<string, unknown>>({
  title,
  route,
  form,
  body,
  flags,
  done,
  onClose,
  children,
}: RouteDialogProps<V>) {
  const id = idOf(route);
  const submit = () =>
    form.save({
      send: (ifMatch) => api.patch('/v1/gateways/{gateway_id}/routes/{route_id}', { path: id, body, ifMatch }),
      saved: async () => {
        toast(done);
        await changed('/v1/gateways');
        onClose();
      },
    });
  return (
    <Dialog title={title} onClose={onClose} mayClose={() => !form.busy}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}>
        {form.conflict && <Conflict {...form.conflict} />}
        {children}
        <Submit
          beside={
            <AsCode
              command={{
                cli: `keygate routes update --gateway ${id.gateway_id} ${id.route_id} ${flags}`,
                method: 'PATCH',
                path: `/v1/gateways/${id.gateway_id}/routes/${id.route_id}`,
                body,
              }}
              why={form.dirty ? null : 'Nothing has been changed yet.'}
            />
          }
          label="Save"
          busy={form.busy}
          error={form.rest}
          unchanged={!form.dirty}
          disabled={form.conflict !== null}
          onCancel={onClose}
        />
      </form>
    </Dialog>
  );
}
