package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newKeys(a *app) *cobra.Command {
	return newGroup("keys", "Manage API keys",
		newKeysCreate(a), newKeysImport(a), newKeysList(a), newKeysGet(a), newKeysUpdate(a), newKeysRevoke(a), newKeysRotate(a), newKeysVerify(a))
}

// The help texts for the owner and the plan of a key.
const (
	keyOwnerHelp = "external `id` of the owner, whose key it is; one that does not exist is created"
	keyPlanHelp  = "`name` or id of the plan of the key itself, whatever its owner has"
)

type keysCreate struct {
	*app
	name, scope, expires, rateLimit, concurrency, gateway, level, owner, plan string
	metadata                                                                  []string
	addresses                                                                 addressFlags
}

func newKeysCreate(a *app) *cobra.Command {
	o := &keysCreate{app: a}
	c := &cobra.Command{
		Use:     "create --name NAME --scope SCOPE",
		Short:   "Create a key, which is shown only once",
		Example: "  keygate keys create --name mobile --scope read:orders --rate-limit 100/min\n  keygate keys create --name ci --scope write --expires 30d -o json | jq -r .key",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "display `name`")
	f.StringVar(&o.scope, "scope", "", "`scope`: read, write or admin, optionally with a resource, such as read:orders; several are separated by spaces")
	f.StringVar(&o.expires, "expires", "", "last `date` on which the key is valid"+expiresUsage)
	f.StringVar(&o.rateLimit, "rate-limit", "", keyLimitHelp)
	f.StringVar(&o.concurrency, "concurrency", "", keyConcurrencyHelp)
	f.StringVar(&o.gateway, "gateway", "", "`id`, name or hostname of the only gateway that the key is valid for (default: all gateways)")
	f.StringVar(&o.level, "level", "", "`level`: gateway (default), or account for the management API")
	f.StringVar(&o.owner, "owner", "", keyOwnerHelp)
	f.StringVar(&o.plan, "plan", "", keyPlanHelp)
	f.StringArrayVar(&o.metadata, "metadata", nil, "metadata, as `NAME=VALUE`; may be repeated")
	o.addresses.add(f, "the key")
	return c
}

func (o *keysCreate) run(c *cobra.Command, _ []string) error {
	if err := errors.Join(required("name", o.name), required("scope", o.scope)); err != nil {
		return usagef("%s", err)
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	limit, err := keyLimit(o.rateLimit)
	if err != nil {
		return err
	}
	concurrency, err := keyConcurrency(o.concurrency)
	if err != nil {
		return err
	}
	if o.expires, err = expiry(o.expires, time.Now()); err != nil {
		return err
	}
	in := client.CreateKeyRequest{
		Name: o.name, Scope: o.scope, ExpiresAt: given(o.expires), RateLimit: limit, Concurrency: concurrency, Plan: given(o.plan),
		Level: given(client.CreateKeyRequestLevel(o.level)),
	}
	if isID(o.plan) {
		in.Plan, in.PlanID = nil, &o.plan
	}
	in.AllowIps, in.DenyIps = o.addresses.given()
	if len(o.metadata) > 0 {
		m, err := pairs("metadata", o.metadata)
		if err != nil {
			return err
		}
		in.Metadata = &m
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if err := o.identify(api, records{gateway: &o.gateway}); err != nil {
		return err
	}
	if err := o.externalID(api, &o.owner); err != nil {
		return err
	}
	in.GatewayID, in.Owner = given(o.gateway), given(o.owner)
	k, err := api.CreateKey(c.Context(), in)
	if err != nil {
		return o.unknownPlan(api, o.plan, err)
	}
	return o.printNewKey(k)
}

// printNewKey prints a key with its string. It fails if the response has no string, as when a lost
// response was replayed.
func (a *app) printNewKey(k *client.NewKey) error {
	err := a.PrintRecord(k, func() []terminal.Field {
		return append(keyFields(&k.Key), filled(terminal.Field{"OVERLAP ENDS", terminal.Moment(k.OverlapEndsAt)}, terminal.Field{"KEY", k.Secret})...)
	})
	if err != nil {
		return err
	}
	if k.Secret == "" {
		return fmt.Errorf("the key was created, but its string was lost with the connection: revoke %s and create another key", k.KeyID)
	}
	a.printWarnings(k.Warnings)
	a.remindToSave("key")
	return nil
}

func keyFields(k *client.Key) []terminal.Field {
	fields := []terminal.Field{
		{"KEY ID", k.KeyID}, {"NAME", k.Name}, {"STATE", string(k.State)}, {"LEVEL", string(k.Level)}, {"SCOPE", k.Scope},
		{"PREFIX", k.KeyPrefix}, {"OWNER", str(k.Owner)}, {"PLAN", str(k.Plan)}, {"GATEWAY", str(k.GatewayID)},
		{"RATE LIMIT", keyLimitText(k.RateLimit)}, {"CONCURRENCY", number(k.Concurrency)}, {"CREATED", terminal.Moment(&k.CreatedAt)}, {"EXPIRES", terminal.Moment(k.ExpiresAt)}, {"LAST USED", terminal.Moment(k.LastUsedAt)},
	}
	if k.Imported {
		fields = append(fields, terminal.Field{"IMPORTED", "true"})
	}
	fields = append(fields, addressFields(k.AllowIps, k.DenyIps)...)
	fields = append(fields, filled(terminal.Field{"REVOKED", terminal.Moment(k.RevokedAt)},
		terminal.Field{"ROTATED FROM", str(k.RotatedFrom)}, terminal.Field{"ROTATED TO", str(k.RotatedTo)})...)
	for _, name := range sortedKeys(k.Metadata) {
		fields = append(fields, terminal.Field{"METADATA " + terminal.Clean(name), k.Metadata[name]})
	}
	return fields
}

func newKeysList(a *app) *cobra.Command {
	filter := &client.KeyFilter{}
	c := &cobra.Command{Use: "list", Short: "List keys, newest first", Args: noArgs}
	f := c.Flags()
	f.StringVar(&filter.State, "state", "", "only keys in this `state`: active, expired or revoked")
	f.StringVar(&filter.GatewayID, "gateway", "", "only keys restricted to the gateway with this `id`, name or hostname")
	f.StringVar(&filter.Level, "level", "", "only keys of this `level`: gateway or account")
	f.StringVar(&filter.Owner, "owner", "", "only keys of the owner with this external `id`")
	f.StringVar(&filter.PlanID, "plan", "", "only keys that have the plan of this `name` or id themselves")
	f.StringVarP(&filter.Query, "query", "q", "", "only keys whose name contains this `text` or whose prefix begins with it")
	return lists(a, c, lister[client.Key]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Key, error], error) {
			err := errors.Join(a.identify(api, records{gateway: &filter.GatewayID, plan: &filter.PlanID}), a.externalID(api, &filter.Owner))
			return api.Keys(ctx, *filter), err
		},
		columns: keyColumns(), row: a.keyRow,
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "keys", "Create one: keygate keys create --name NAME --scope read")
		},
	})
}

// keyColumns are the columns of a list of keys, in which keyRow is a row.
func keyColumns() []terminal.Column {
	return []terminal.Column{
		{Name: "KEY ID"}, {Name: "NAME", Flex: true}, {Name: "STATE", State: true}, {Name: "LEVEL", Rank: 6}, {Name: "SCOPE", Flex: true},
		{Name: "PREFIX", Rank: 5}, {Name: "OWNER", Rank: 4, Flex: true}, {Name: "PLAN", Rank: 7, Flex: true}, {Name: "RATE LIMIT", Rank: 3}, {Name: "CONCURRENCY", Rank: 8}, {Name: "EXPIRES", Rank: 2}, {Name: "LAST USED", Rank: 1},
	}
}

func (a *app) keyRow(k *client.Key) []string {
	return []string{
		k.KeyID, k.Name, string(k.State), string(k.Level), k.Scope, k.KeyPrefix, str(k.Owner), str(k.Plan), keyLimitText(k.RateLimit), number(k.Concurrency),
		a.When(k.ExpiresAt), a.When(k.LastUsedAt),
	}
}

func newKeysGet(a *app) *cobra.Command {
	return shows(oneKey(a), &cobra.Command{Use: "get KEY_ID", Short: "Show a key"}, (*client.Client).Key, keyFields)
}

func newKeysRevoke(a *app) *cobra.Command {
	return destroys(oneKey(a), &cobra.Command{Use: "revoke KEY_ID", Short: "Revoke a key"},
		destroyer[client.Key]{"revoke", (*client.Client).Key, lostWithKey, (*client.Client).RevokeKey, keyLabel, keyFields})
}

type keysUpdate struct {
	name, owner, plan, rateLimit, concurrency, expires string
	metadata                                           []string
	addresses                                          addressFlags
	patch                                              client.KeyPatch
}

func newKeysUpdate(a *app) *cobra.Command {
	o := &keysUpdate{}
	c := &cobra.Command{
		Use: "update KEY_ID", Short: "Change a key; an empty value clears a field",
		Example: "  keygate keys update key_01j… --rate-limit 500/min --owner ''", PreRunE: o.read,
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "display `name`")
	f.StringVar(&o.owner, "owner", "", keyOwnerHelp)
	f.StringVar(&o.plan, "plan", "", keyPlanHelp)
	f.StringVar(&o.rateLimit, "rate-limit", "", keyLimitHelp)
	f.StringVar(&o.concurrency, "concurrency", "", keyConcurrencyHelp)
	f.StringVar(&o.expires, "expires", "", "last `date` on which the key is valid"+expiresUsage)
	f.StringArrayVar(&o.metadata, "metadata", nil, "metadata, as `NAME=VALUE`, which replaces all existing metadata; may be repeated")
	o.addresses.add(f, "the key")
	return shows(oneKey(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Key, error) {
		if isID(o.owner) {
			if err := a.externalID(api, &o.owner); err != nil {
				return nil, err
			}
			o.patch.Owner = client.Set(o.owner)
		}
		k, err := api.UpdateKey(ctx, id, o.patch)
		if err != nil {
			return nil, a.unknownPlan(api, o.plan, err)
		}
		return k, nil
	}, keyFields)
}

// read makes the patch that the flags ask for.
func (o *keysUpdate) read(c *cobra.Command, _ []string) error {
	set, p := changesOf(c), &o.patch
	var err error
	if o.expires, err = expiry(o.expires, time.Now()); err != nil {
		return err
	}
	p.Owner, p.ExpiresAt = set.text("owner", o.owner), set.text("expires", o.expires)
	if c.Flags().Changed("rate-limit") {
		limit, err := keyLimit(o.rateLimit)
		if err != nil {
			return err
		}
		if p.RateLimit = client.Clear[client.KeyRateLimit](); limit != nil {
			p.RateLimit = client.Set(*limit)
		}
	}
	if c.Flags().Changed("concurrency") {
		n, err := keyConcurrency(o.concurrency)
		if err != nil {
			return err
		}
		if p.Concurrency = client.Clear[int64](); n != nil {
			p.Concurrency = client.Set(*n)
		}
	}
	if c.Flags().Changed("name") {
		p.Name = client.Set(o.name)
	}
	if p.Metadata, err = set.metadata(o.metadata); err != nil {
		return err
	}
	p.AllowIps, p.DenyIps = o.addresses.changes(c.Flags())
	if p.Plan = set.text("plan", o.plan); isID(o.plan) {
		p.Plan, p.PlanID = client.Change[string]{}, set.text("plan", o.plan)
	}
	if p.Name.IsZero() && p.Owner.IsZero() && p.Plan.IsZero() && p.PlanID.IsZero() && p.RateLimit.IsZero() && p.Concurrency.IsZero() && p.ExpiresAt.IsZero() && p.Metadata.IsZero() && p.AllowIps.IsZero() && p.DenyIps.IsZero() {
		return usagef("nothing to change: give at least one of --name, --owner, --plan, --rate-limit, --concurrency, --expires, --metadata, --allow-ip and --deny-ip")
	}
	return nil
}

func newKeysRotate(a *app) *cobra.Command {
	o := oneKey(a)
	var overlapDays int64
	var expires string
	c := &cobra.Command{
		Use:     "rotate --key-id KEY_ID --overlap-days DAYS",
		Short:   "Replace a key with a new one; the old key stays valid during the overlap",
		Example: "  keygate keys rotate --key-id key_01j… --overlap-days 7",
		PreRunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("overlap-days") {
				return required("overlap-days", "")
			}
			if err := noneEmpty(c); err != nil {
				return err
			}
			var err error
			expires, err = expiry(expires, time.Now())
			return err
		},
	}
	c.Flags().Int64Var(&overlapDays, "overlap-days", 0, "number of `days` for which both keys are valid; 0 expires the old key at once")
	c.Flags().StringVar(&expires, "expires", "", "last `date` on which the new key is valid"+expiresUsage+" (default: the expiry of the old key)")
	return o.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		k, err := api.RotateKey(ctx, id, client.RotateKeyRequest{OverlapDays: overlapDays, ExpiresAt: given(expires)})
		if err != nil {
			return err
		}
		return o.printNewKey(k)
	})
}

type keysVerify struct {
	*app
	gateway, method, path string
	token                 bool
}

func newKeysVerify(a *app) *cobra.Command {
	o := &keysVerify{app: a}
	c := &cobra.Command{
		Use:     "verify",
		Short:   "Check whether a key or a token would be accepted; it is read from a prompt or standard input",
		Long:    "Check whether a key would be accepted, or with --token a token of an issuer. It is read from a\nprompt or standard input. REASON says why a token is refused. The exit status is 1 if it would\nnot be accepted.",
		Example: "  keygate keys verify --method DELETE --path /orders/17 < key.txt\n  keygate keys verify --token --gateway shop < token.txt",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.BoolVar(&o.token, "token", false, "what is read is a token of an issuer, not a key")
	f.StringVar(&o.gateway, "gateway", "", "`id`, name or hostname of the gateway to check against")
	f.StringVar(&o.method, "method", "", "`method` of the request to check")
	f.StringVar(&o.path, "path", "", "`path` of the request to check")
	return c
}

func (o *keysVerify) run(c *cobra.Command, _ []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if err := o.identify(api, records{gateway: &o.gateway}); err != nil {
		return err
	}
	prompt, what := "Key to verify: ", "key"
	if o.token {
		prompt, what = "Token to verify: ", "token"
	}
	secret, err := o.readSecret(prompt, what)
	if err != nil {
		return err
	}
	in := client.VerifyKeyRequest{Key: &secret, GatewayID: given(o.gateway), Method: given(o.method), Path: given(o.path)}
	if o.token {
		in.Key, in.Token = nil, &secret
	}
	v, err := api.VerifyKey(c.Context(), in)
	if err != nil {
		return err
	}
	err = o.PrintRecord(v, func() []terminal.Field {
		if o.token {
			return []terminal.Field{
				{"VALID", fmt.Sprint(v.Valid)}, {"CODE", str(v.Code)}, {"REASON", str(v.Reason)}, {"ISSUER ID", str(v.IssuerID)}, {"SUBJECT", str(v.Subject)},
				{"OWNER", str(v.Owner)}, {"PLAN", str(v.Plan)}, {"SCOPE", str(v.Scope)}, {"EXPIRES", o.When(v.ExpiresAt)},
			}
		}
		return []terminal.Field{
			{"VALID", fmt.Sprint(v.Valid)}, {"CODE", str(v.Code)}, {"KEY ID", str(v.KeyID)}, {"OWNER", str(v.Owner)},
			{"SCOPE", str(v.Scope)}, {"STATE", str(v.State)},
		}
	})
	if err == nil && !v.Valid {
		err = errNotValid
	}
	return err
}

// readSecret reads a key, or another secret that what names, as one line, without echo if it is typed.
func (a *app) readSecret(prompt, what string) (string, error) {
	line, err := a.ReadLine(prompt)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return "", usagef("no %s was given: type it at the prompt or pass it on standard input", what)
	}
	return line, nil
}
