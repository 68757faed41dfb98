import type { ReactNode } from 'react';
import { type Answer, api, type Schemas } from '../../api/client';
import { changed } from '../../api/hooks';
import { useEdit } from '../../lib/edit';
import { toast } from '../../ui/toast';
import { FormDialog } from '../../ui/formdialog';

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
    <FormDialog
      title={title}
      form={form}
      submit={submit}
      command={{
        cli: `keygate routes update --gateway ${id.gateway_id} ${id.route_id} ${flags}`,
        method: 'PATCH',
        path: `/v1/gateways/${id.gateway_id}/routes/${id.route_id}`,
        body,
      }}
      onClose={onClose}>
      {children}
    </FormDialog>
  );
}
