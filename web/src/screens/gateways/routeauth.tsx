import type { Answer, Schemas } from '../../api/client';
import { SelectField } from '../../ui/form';
import { RouteDialog, useRouteEdit } from './routedialog';

type Route = Schemas['Route'];
type Auth = Route['auth'];

export const authWords: Record<Auth, string> = {
  key: 'need a key',
  token: 'need a token of an issuer',
  any: 'need a key or a token',
  none: 'everybody: the route is public',
};

const options = (Object.keys(authWords) as Auth[]).map((value) => ({
  value: value as string,
  label: authWords[value].replace(/^./, (c) => c.toUpperCase()),
}));

// GatewayAuth is what a gateway says of its routes' callers.
export type GatewayAuth = Pick<Schemas['Gateway'], 'default_auth' | 'issuers'>;

// AuthField chooses the credential that a route needs: '' is that of its gateway, which is undefined while it is not known.
export function AuthField({
  value,
  onChange,
  error,
  gateway,
}: {
  value: string;
  onChange: (auth: string) => void;
  error?: string;
  gateway?: GatewayAuth;
}) {
  const auth = value || gateway?.default_auth;
  const takesTokens = auth === 'token' || auth === 'any';
  const hint =
    takesTokens && gateway && !gateway.issuers?.length
      ? 'The gateway names no issuer, so every token is refused: see its settings.'
      : undefined;
  const inherited = { value: '', label: `As the gateway says${gateway ? ` (${authWords[gateway.default_auth]})` : ''}` };
  return <SelectField label="Callers" value={value} onChange={onChange} error={error} hint={hint} options={[inherited, ...options]} />;
}

const valuesOf = ({ auth }: Route) => ({ auth: auth as string });

// AuthEditor changes the credential that a route needs.
export function AuthEditor({ first, gateway, onClose }: { first: Answer<Route>; gateway?: GatewayAuth; onClose: () => void }) {
  const form = useRouteEdit({
    first,
    valuesOf,
    labels: { auth: 'Callers' },
    show: (auth) => authWords[auth as Auth] ?? 'as the gateway says',
  });
  const { auth } = form.values;
  return (
    <RouteDialog
      title="Callers of the route"
      route={first.data}
      form={form}
      body={{ auth: auth || null }}
      flags={`--auth ${auth || "''"}`}
      done="What callers of the route need is changed"
      onClose={onClose}>
      <AuthField value={auth} onChange={(a) => form.set('auth', a)} error={form.fieldError('auth')} gateway={gateway} />
    </RouteDialog>
  );
}
