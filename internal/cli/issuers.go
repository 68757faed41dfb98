package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newIssuers(a *app) *cobra.Command {
	return newGroup("issuers", "Manage issuers of tokens",
		newIssuersCreate(a), newIssuersList(a), newIssuersGet(a), newIssuersUpdate(a), newIssuersRefresh(a), newIssuersDeny(a), newIssuersDenials(a), newIssuersLift(a), newIssuersDelete(a))
}

func issuerLabel(i *client.Issuer) string { return "issuer " + withID(i.Name, i.IssuerID) }

// issuerID returns the identifier of the issuer with an identifier or name.
func (a *app) issuerID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	for i, err := range api.Issuers(a.Context, client.IssuerFilter{Name: ref}) {
		if err != nil {
			return "", err
		}
		return i.IssuerID, nil
	}
	return "", &notFoundError{fmt.Sprintf("there is no issuer %q: keygate issuers list shows the names", ref)}
}

func oneIssuer(a *app) *one {
	return &one{app: a, flag: "issuer-id", usage: "`id` or name of the issuer" + alsoArgument, find: a.issuerID}
}

func issuerFields(i *client.Issuer) []terminal.Field {
	fields := []terminal.Field{
		{"ISSUER ID", i.IssuerID}, {"NAME", i.Name}, {"ISSUER", i.Issuer}, {"STATE", i.State}, {"AUDIENCES", strings.Join(i.Audiences, " ")},
		{"ALGORITHMS", strings.Join(i.Algorithms, " ")}, {"LEEWAY", i.Leeway}, {"MAX LIFETIME", i.MaxLifetime}, {"OWNER PREFIX", i.OwnerPrefix},
		{"CREATED", terminal.Moment(&i.CreatedAt)},
	}
	fields = append(fields, filled(
		terminal.Field{"JWKS URL", str(i.JWKSURL)}, terminal.Field{"CA", caText(i.CA)}, terminal.Field{"TYP", str(i.Type)}, terminal.Field{"SCOPE CLAIM", str(i.Claims.Scope)}, terminal.Field{"OWNER CLAIM", str(i.Claims.Owner)},
		terminal.Field{"PLAN CLAIM", str(i.Claims.Plan)}, terminal.Field{"LAST ERROR", str(i.LastError)},
	)...)
	if i.DefaultScopes != nil {
		fields = append(fields, terminal.Field{"DEFAULT SCOPES", strings.Join(*i.DefaultScopes, " ")})
	}
	if i.ForwardToken {
		fields = append(fields, terminal.Field{"FORWARD TOKEN", "yes"})
	}
	for _, claim := range slices.Sorted(maps.Keys(i.Required)) {
		value, _ := json.Marshal(i.Required[claim]) // it was JSON
		fields = append(fields, terminal.Field{"REQUIRED " + terminal.Clean(claim), string(value)})
	}
	for _, word := range sortedKeys(i.ScopeMap) {
		fields = append(fields, terminal.Field{"SCOPE OF " + terminal.Clean(word), i.ScopeMap[word]})
	}
	for _, header := range sortedKeys(i.ClaimHeaders) {
		fields = append(fields, terminal.Field{"HEADER " + terminal.Clean(header), i.ClaimHeaders[header]})
	}
	for n := range i.Keys {
		fields = append(fields, terminal.Field{"KEY", issuerKeyText(&i.Keys[n])})
	}
	return fields
}

// caText says whether an issuer has certificates for fetches.
func caText(ca *string) string {
	if ca == nil {
		return ""
	}
	return "in place of the system's roots"
}

// issuerKeyText describes a key of an issuer.
func issuerKeyText(k *client.IssuerKey) string {
	text := str(k.Kid)
	if k.Kid == nil {
		text = "without kid"
	}
	if k.Alg != nil {
		text += " " + *k.Alg
	}
	text += ", first seen " + terminal.Moment(&k.FirstSeen)
	if k.Unusable != nil {
		text += "; not used: it " + *k.Unusable
	}
	return text
}

// issuerFlags are the flags of what an issuer has besides its name.
type issuerFlags struct {
	*app
	issuer, jwksURL, jwks, ca         string
	leeway, lifetime, typ, prefix     string
	audiences, algorithms, scopes     []string
	required, scopeMap, headers       []string
	scopeClaim, ownerClaim, planClaim string
	forward                           bool
}

func (o *issuerFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.issuer, "issuer", "", "`URL` that the claim iss of its tokens has, exactly")
	f.StringVar(&o.jwksURL, "jwks-url", "", "`URL` where its keys are fetched (default: what discovery at --issuer says)")
	f.StringVar(&o.jwks, "jwks", "", "`file` with its public keys, a JWK Set, which are then not fetched, or - for standard input")
	f.StringVar(&o.ca, "ca", "", "`file` with certificates in PEM that replace the system's roots when its keys are fetched")
	f.StringArrayVar(&o.audiences, "audience", nil, "`audience` that a token may be for; may be repeated")
	f.StringArrayVar(&o.algorithms, "algorithm", nil, "signature `algorithm` of its tokens; may be repeated (default: RS256, ES256 and EdDSA)")
	f.StringVar(&o.leeway, "leeway", "", "`duration` by which its clock and that of Keygate may differ (default: 60s)")
	f.StringVar(&o.lifetime, "max-lifetime", "", "`duration` that a token may be ahead of its end (default: 24h)")
	f.StringVar(&o.typ, "typ", "", "`type` that the header of a token must have, such as at+jwt")
	f.StringArrayVar(&o.required, "required", nil, "claim that a token must have, as `CLAIM=VALUE`; VALUE is JSON, such as true or [\"a\",\"b\"], or else a text; may be repeated")
	f.StringVar(&o.scopeClaim, "scope-claim", "", "`claim` with the scopes (default: scope, or else scp)")
	f.StringVar(&o.ownerClaim, "owner-claim", "", "`claim` with the owner (default: tokens have none)")
	f.StringVar(&o.planClaim, "plan-claim", "", "`claim` with the name of the plan")
	f.StringArrayVar(&o.scopeMap, "scope-map", nil, "scope for a word of the scope claim, as `WORD=SCOPE`; may be repeated")
	f.StringArrayVar(&o.scopes, "default-scope", nil, "`scope` of a token without the scope claim; may be repeated")
	f.StringVar(&o.prefix, "owner-prefix", "", "`text` in front of the value of the owner's claim (default: the name and a slash)")
	f.StringArrayVar(&o.headers, "claim-header", nil, "header in which the upstream gets a claim, as `HEADER=CLAIM`; may be repeated")
	f.BoolVar(&o.forward, "forward-token", false, "leave the token in requests for the upstream")
}

// keys returns the JWK Set of --jwks; nil for none.
func (o *issuerFlags) keys() (json.RawMessage, error) {
	if o.jwks == "" {
		return nil, nil
	}
	content, err := o.ReadInput(o.jwks)
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	if content = bytes.TrimSpace(content); !json.Valid(content) {
		return nil, usagef("--jwks: %s is not JSON: give a JWK Set, such as what the provider's jwks_uri returns", o.jwks)
	}
	return content, nil
}

// authority returns the certificates of --ca; "" for none.
func (o *issuerFlags) authority() (string, error) {
	if o.ca == "" {
		return "", nil
	}
	content, err := o.ReadInput(o.ca)
	if err != nil {
		return "", fmt.Errorf("read the certificates: %w", err)
	}
	return string(content), nil
}

// claims returns the claims that the flags name, in place of those that the issuer has.
func (o *issuerFlags) claims(c *cobra.Command, has client.IssuerClaims) client.IssuerClaims {
	for _, one := range []struct {
		flag, claim string
		to          **string
	}{{"scope-claim", o.scopeClaim, &has.Scope}, {"owner-claim", o.ownerClaim, &has.Owner}, {"plan-claim", o.planClaim, &has.Plan}} {
		if c.Flags().Changed(one.flag) {
			*one.to = given(one.claim)
		}
	}
	return has
}

// requiredClaims returns the claims of --required.
func requiredClaims(values []string) (map[string]any, error) {
	texts, err := pairs("required", values)
	required := make(map[string]any, len(texts))
	for claim, text := range texts {
		if required[claim] = json.RawMessage(text); !json.Valid([]byte(text)) {
			required[claim] = text
		}
	}
	return required, err
}

func newIssuersCreate(a *app) *cobra.Command {
	o := &issuerFlags{app: a}
	name := ""
	c := &cobra.Command{
		Use: "create NAME --issuer URL --audience AUDIENCE", Short: "Create an issuer",
		Long: `Create an issuer: who signs tokens, what they must have, and what they give their bearer.

Its keys are fetched from its provider, and again when they change. Where they are is found by
discovery at the URL of the issuer, unless --jwks-url says it, or --jwks has the keys.

Tokens may have any scope on gateways, so this needs a key with the scope admin.`,
		Example: "  keygate issuers create login --issuer https://login.example.com/ \\\n      --audience https://api.example.com --owner-claim org_id",
		Args:    atMost(1),
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the issuer"+alsoArgument)
	o.add(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		named, err := idOf("name", name, args)
		if err != nil {
			return err
		}
		for _, flag := range []string{"issuer", "audience"} {
			if !c.Flags().Changed(flag) {
				return usagef("--%s is required: see keygate issuers create --help", flag)
			}
		}
		in, err := o.request(c, named)
		if err != nil {
			return err
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		made, err := api.CreateIssuer(c.Context(), in)
		if err != nil {
			return err
		}
		return show(a, made, issuerFields)
	}
	return c
}

// request returns the issuer that the flags describe.
func (o *issuerFlags) request(c *cobra.Command, name string) (in client.CreateIssuerRequest, err error) {
	in = client.CreateIssuerRequest{
		Name: name, Issuer: o.issuer, JWKSURL: o.jwksURL, Audiences: o.audiences, Algorithms: o.algorithms, Leeway: o.leeway, MaxLifetime: o.lifetime, Type: o.typ,
		DefaultScopes: o.scopes, ForwardToken: o.forward,
	}
	claims := o.claims(c, client.IssuerClaims{})
	in.Claims = &claims
	if c.Flags().Changed("owner-prefix") {
		in.OwnerPrefix = &o.prefix
	}
	if in.JWKS, err = o.keys(); err != nil {
		return in, err
	}
	if in.CA, err = o.authority(); err != nil {
		return in, err
	}
	if in.Required, err = requiredClaims(o.required); err != nil {
		return in, err
	}
	if in.ScopeMap, err = pairs("scope-map", o.scopeMap); err != nil {
		return in, err
	}
	in.ClaimHeaders, err = pairs("claim-header", o.headers)
	return in, err
}

func newIssuersList(a *app) *cobra.Command {
	filter := &client.IssuerFilter{}
	c := &cobra.Command{Use: "list", Short: "List issuers, newest first", Args: noArgs}
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only issuers whose name contains this `text`")
	return lists(a, c, lister[client.Issuer]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Issuer, error], error) {
			return api.Issuers(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "ISSUER ID", Rank: 2}, {Name: "NAME", Flex: true}, {Name: "ISSUER", Flex: true}, {Name: "STATE", State: true}, {Name: "AUDIENCES", Rank: 3, Flex: true},
			{Name: "CREATED", Rank: 1},
		},
		row: func(i *client.Issuer) []string {
			return []string{i.IssuerID, i.Name, i.Issuer, i.State, strings.Join(i.Audiences, " "), a.When(&i.CreatedAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "issuers", "Create one: keygate issuers create NAME --issuer URL --audience AUDIENCE")
		},
	})
}

func newIssuersGet(a *app) *cobra.Command {
	return shows(oneIssuer(a), &cobra.Command{Use: "get ISSUER_ID", Short: "Show an issuer"}, (*client.Client).Issuer, issuerFields)
}

func newIssuersUpdate(a *app) *cobra.Command {
	o, name := &issuerFlags{app: a}, ""
	c := &cobra.Command{
		Use: "update ISSUER_ID", Short: "Change an issuer; an empty value clears a field",
		Long: `Change an issuer. A list or map is replaced as a whole: repeat its flag for each entry. An
empty value clears a field: --jwks '' lets the keys be fetched. --owner-prefix '' means no prefix.`,
		Example: "  keygate issuers update login --jwks-url https://login.example.com/keys",
		PreRunE: func(c *cobra.Command, _ []string) error {
			changed := false
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { changed = changed || f.Changed && f.Name != "issuer-id" })
			if !changed {
				return usagef("nothing to change: give at least one of --name, --issuer, --jwks, --audience and the other flags of keygate issuers update --help")
			}
			return nil
		},
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the issuer")
	o.add(c.Flags())
	return shows(oneIssuer(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Issuer, error) {
		p, err := o.patch(c, name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc([]string{"scope-claim", "owner-claim", "plan-claim"}, c.Flags().Changed) {
			has, err := api.Issuer(ctx, id)
			if err != nil {
				return nil, err
			}
			p.Claims = client.Set(o.claims(c, has.Claims))
		}
		return api.UpdateIssuer(ctx, id, p)
	}, issuerFields)
}

// patch returns the changes that the flags ask for, without those of claims.
func (o *issuerFlags) patch(c *cobra.Command, name string) (p client.IssuerPatch, err error) {
	set := changesOf(c)
	if c.Flags().Changed("name") {
		p.Name = client.Set(name)
	}
	if c.Flags().Changed("issuer") {
		p.Issuer = client.Set(o.issuer)
	}
	if c.Flags().Changed("jwks") {
		keys, err := o.keys()
		if err != nil {
			return p, err
		}
		if p.JWKS = client.Set(keys); keys == nil {
			p.JWKS = client.Clear[json.RawMessage]()
		}
	}
	ca, err := o.authority()
	if err != nil {
		return p, err
	}
	p.JWKSURL, p.CA = set.text("jwks-url", o.jwksURL), set.text("ca", ca)
	if c.Flags().Changed("audience") {
		p.Audiences = client.Set(o.audiences)
	}
	p.Leeway, p.MaxLifetime, p.Type = set.text("leeway", o.leeway), set.text("max-lifetime", o.lifetime), set.text("typ", o.typ)
	p.Algorithms, p.DefaultScopes = listChange(set, "algorithm", o.algorithms), listChange(set, "default-scope", o.scopes)
	if c.Flags().Changed("owner-prefix") {
		p.OwnerPrefix = client.Set(o.prefix)
	}
	if c.Flags().Changed("forward-token") {
		p.ForwardToken = client.Set(o.forward)
	}
	if p.Required, err = mapChange(set, "required", o.required, requiredClaims); err != nil {
		return p, err
	}
	text := func(flag string) func([]string) (map[string]string, error) {
		return func(values []string) (map[string]string, error) { return pairs(flag, values) }
	}
	if p.ScopeMap, err = mapChange(set, "scope-map", o.scopeMap, text("scope-map")); err != nil {
		return p, err
	}
	p.ClaimHeaders, err = mapChange(set, "claim-header", o.headers, text("claim-header"))
	return p, err
}

// listChange returns the change of a field to the values of a flag. One empty value clears the field.
func listChange(set changes, flag string, values []string) client.Change[[]string] {
	switch {
	case !set.flags.Changed(flag):
		return client.Change[[]string]{}
	case strings.Join(values, "") == "":
		return client.Clear[[]string]()
	default:
		return client.Set(values)
	}
}

// mapChange is listChange for a field that read makes of the values.
func mapChange[V any](set changes, flag string, values []string, read func([]string) (map[string]V, error)) (c client.Change[map[string]V], err error) {
	switch {
	case !set.flags.Changed(flag):
		return c, nil
	case strings.Join(values, "") == "":
		return client.Clear[map[string]V](), nil
	}
	m, err := read(values)
	return client.Set(m), err
}

func newIssuersRefresh(a *app) *cobra.Command {
	return shows(oneIssuer(a), &cobra.Command{
		Use: "refresh ISSUER_ID", Short: "Fetch the keys of an issuer now",
		Long: `Fetch the keys of an issuer now, and show the issuer. If they could not be fetched, LAST ERROR
says why, and those that were fetched before stay.`,
	}, (*client.Client).RefreshIssuer, issuerFields)
}

func newIssuersDelete(a *app) *cobra.Command {
	nothing := func(context.Context, *client.Client, *client.Issuer) (lost, error) { return lost{}, nil }
	remove := func(api *client.Client, ctx context.Context, id string) (*client.Issuer, error) {
		return api.DeleteIssuer(ctx, id)
	}
	return destroys(oneIssuer(a), &cobra.Command{Use: "delete ISSUER_ID", Short: "Delete an issuer"},
		destroyer[client.Issuer]{"delete", (*client.Client).Issuer, nothing, remove, issuerLabel, issuerFields})
}
