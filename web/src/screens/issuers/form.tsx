import type { useForm } from '../../lib/form';
import { algorithms, type IssuerValues, labels, maxClaimHeaders, maxRequired, maxScopeMap } from '../../lib/issuer';
import { Panel } from '../../ui/basic';
import { AreaField, CheckField, ChoicesField, SelectField, TextField } from '../../ui/form';
import { type Pair, Pairs } from '../../ui/pairs';

// A FormOf has what the fields need of a form.
type FormOf = Pick<ReturnType<typeof useForm<IssuerValues>>, 'values' | 'set' | 'errorAt' | 'errorsAt'>;

const grid = 'grid gap-4 sm:grid-cols-2';

// IssuerFields edits an issuer: who it is, where its keys come from, what a token must have, what it gives its bearer and what the
// upstream gets.
export function IssuerFields({ form }: { form: FormOf }) {
  const { values: v, set } = form;
  const below = (name: string) => (f: string) => f === name || f.startsWith(`${name}.`) || f.startsWith(`${name}[`);
  const error = (name: string) => form.errorAt(below(name));
  // pairsError says which of the pairs is wrong as well.
  const pairsError = (name: string) =>
    form
      .errorsAt(below(name))
      .map((e) => (e.field === name ? e.message : `${e.field.slice(name.length + 1)}: ${e.message}`))
      .join('\n') || undefined;
  const text = (name: keyof IssuerValues & string, field: string = name) => ({
    label: labels[name],
    mono: true,
    value: v[name] as string,
    onChange: (t: string) => set(name, t as never),
    error: error(field),
  });
  const pairs = (name: keyof IssuerValues & string) => ({
    label: labels[name] ?? name,
    value: v[name] as Pair[],
    onChange: (list: Pair[]) => set(name, list as never),
    error: pairsError(name),
  });
  return (
    <>
      <Panel title="Issuer">
        <div className={grid}>
          <TextField
            {...text('name')}
            required
            maxLength={64}
            placeholder="login"
            hint="Of a-z, 0-9, - and _. Gateways name the issuer by it."
          />
          <TextField
            {...text('issuer')}
            required
            placeholder="https://login.example.com/"
            hint="The claim iss of its tokens, compared exactly: with or without the slash at the end, as the provider writes it"
          />
        </div>
      </Panel>
      <Panel title="Keys">
        <div className="flex flex-col gap-4">
          <SelectField
            label={labels.keys}
            value={v.keys}
            onChange={(keys) => set('keys', keys as IssuerValues['keys'])}
            options={[
              { value: 'discovery', label: 'Fetched, where discovery at the issuer says' },
              { value: 'url', label: 'Fetched from a URL' },
              { value: 'given', label: 'Given by hand' },
            ]}
          />
          {v.keys === 'url' && (
            <TextField
              {...text('jwks_url')}
              required
              placeholder="https://login.example.com/keys"
              hint="A JWK Set, over https and without redirects"
            />
          )}
          {v.keys === 'given' && (
            <AreaField
              label={labels.jwks}
              required
              rows={8}
              value={v.jwks}
              onChange={(t) => set('jwks', t)}
              error={error('jwks')}
              placeholder={'{"keys": [{"kty": "RSA", "kid": "2026-01", "n": "…", "e": "AQAB"}]}'}
              hint="A JWK Set with public keys, such as what the provider’s jwks_uri returns. Change it before the provider signs with another key."
            />
          )}
          {v.keys !== 'given' && (
            <AreaField
              label={labels.ca}
              optional
              rows={3}
              value={v.ca}
              onChange={(t) => set('ca', t)}
              error={error('ca')}
              placeholder="-----BEGIN CERTIFICATE-----"
              hint="In PEM, for a provider whose certificate is not of a public authority. They replace the system’s roots."
            />
          )}
        </div>
      </Panel>
      <Panel title="What a token must have">
        <div className="flex flex-col gap-4">
          <div className={grid}>
            <AreaField
              label={labels.audiences}
              required
              rows={3}
              value={v.audiences}
              onChange={(t) => set('audiences', t)}
              error={error('audiences')}
              placeholder="https://api.example.com"
              hint="One in each line; a token must be for one of them (aud). Give the identifier of your API, never that of a client: otherwise tokens for any other application pass."
            />
            <ChoicesField
              label={labels.algorithms ?? ''}
              choices={algorithms}
              value={v.algorithms}
              onChange={(list) => set('algorithms', list)}
              error={error('algorithms')}
              hint="A token does not choose: its algorithm must be one of these, and fit its key."
            />
          </div>
          <div className="grid gap-4 sm:grid-cols-3">
            <TextField {...text('leeway')} placeholder="60s" hint="How far the clocks may differ: 0s to 5m" />
            <TextField {...text('max_lifetime')} placeholder="24h" hint="How far ahead a token may expire: 1m to 9600h" />
            <TextField {...text('typ')} optional placeholder="at+jwt" hint="The typ of its header; any, if this is empty" />
          </div>
          <Pairs
            {...pairs('required')}
            max={maxRequired}
            hint='Claims that a token must have. A value is JSON, such as true, 3 or ["a", "b"], of which one suffices; anything else is a text.'
          />
        </div>
      </Panel>
      <Panel title="What a token gives">
        <p className="mb-3 text-muted">
          A claim is a member of the token or, if there is none of that name, a path such as realm_access.roles.
        </p>
        <div className="flex flex-col gap-4">
          <div className="grid gap-4 sm:grid-cols-3">
            <TextField
              {...text('scope_claim', 'claims.scope')}
              optional
              placeholder="scope, or else scp"
              hint="A string of words, or a list"
            />
            <TextField
              {...text('owner_claim', 'claims.owner')}
              optional
              placeholder="org_id"
              hint="Tokens have no owner, if this is empty"
            />
            <TextField
              {...text('plan_claim', 'claims.plan')}
              optional
              placeholder="plan"
              hint="The plan of the owner or of the gateway counts, if this is empty"
            />
          </div>
          <Pairs
            {...pairs('scope_map')}
            max={maxScopeMap}
            hint="Scopes by words of the scope claim, such as order-admin for write:orders. Other words count if they are scopes."
          />
          <TextField
            {...text('default_scopes')}
            optional
            placeholder="read:orders"
            hint="Of a token without the scope claim, separated by spaces. Without any, every request with it is refused (403)."
          />
          <div className={grid}>
            <SelectField
              label={labels.prefix}
              value={v.prefix}
              onChange={(prefix) => set('prefix', prefix as IssuerValues['prefix'])}
              error={v.prefix === 'own' ? undefined : error('owner_prefix')}
              hint="It precedes the value of the owner’s claim, so that issuers do not meet each other’s owners."
              options={[
                { value: 'default', label: `Its name and a slash: ${v.name.trim() || 'NAME'}/` },
                { value: 'own', label: 'Another one' },
                { value: 'none', label: 'None' },
              ]}
            />
            {v.prefix === 'own' && <TextField {...text('owner_prefix')} required maxLength={64} placeholder="login/" />}
          </div>
        </div>
      </Panel>
      <Panel title="What the upstream gets">
        <div className="flex flex-col gap-4">
          <Pairs
            {...pairs('claim_headers')}
            max={maxClaimHeaders}
            hint="Claims by headers, such as X-User-Email for email. Headers of these names are removed from every request to gateways that name the issuer."
          />
          <CheckField
            label={labels.forward_token}
            hint="The token stays in requests for the upstream. Otherwise it is removed."
            checked={v.forward_token}
            onChange={(on) => set('forward_token', on)}
          />
        </div>
      </Panel>
    </>
  );
}
