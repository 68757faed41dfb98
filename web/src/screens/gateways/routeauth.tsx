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
  value,
  label: authWords[value].replace(/^./, (c) => c.toUpperCase()),
}));

// AuthField chooses the credential that a route needs. issuers are those of its gateway; undefined while they are not known.
export function AuthField({
  value,
  onChange,
  error,
  issuers,
}: {
  value: string;
  onChange: (auth: string) => void;
  error?: string;
  issuers?: string[];
}) {
  const takesTokens = value === 'token' || value === 'any';
  const hint =
    takesTokens && issuers?.length === 0 ? 'The gateway names no issuer, so every token is refused: see its settings.' : undefined;
  return <SelectField label="Callers" value={value} onChange={onChange} error={error} hint={hint} options={options} />;
}

const valuesOf = ({ auth }: Route) => ({ auth: auth as string });

// AuthEditor changes the credential that a route needs.
export function AuthEditor({ first, issuers, onClose }: { first: Answer<Route>; issuers?: string[]; onClose: () => void }) {
  const form = useRouteEdit({ first, valuesOf, labels: { auth: 'Callers' }, show: (auth) => authWords[auth as Auth] });
  const { auth } = form.values;
  return (
    <RouteDialog
      title="Callers of the route"
      route={first.data}
      form={form}
      body={{ auth }}
      flags={`--auth ${auth}`}
      done="What callers of the route need is changed"
      onClose={onClose}>
      <AuthField value={auth} onChange={(a) => form.set('auth', a)} error={form.fieldError('auth')} issuers={issuers} />
    </RouteDialog>
  );
}
