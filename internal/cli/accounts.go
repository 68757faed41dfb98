package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newAccounts(a *app) *cobra.Command {
	c := newGroup("accounts", "Manage all accounts of a server, with a key of the account default",
		newAccountsCreate(a), newAccountsList(a), newAccountsGet(a), newAccountsUpdate(a),
		newAccountsState(a, "suspend", "suspended", "Suspend an account: its keys and gateways are refused at once, its webhooks wait"),
		newAccountsState(a, "resume", "active", "Resume a suspended account"),
		newAccountsDelete(a))
	c.Aliases = nil // the command in the singular works without a server
	c.Long = `Manage all accounts of a server. It needs a key of the account default, the operator's.

To create accounts and keys directly in the store on this machine, without a key, see
keygate account --help.`
	return c
}

func accountLabel(a *client.Account) string { return "account " + withID(a.Name, a.AccountID) }

// accountID returns the identifier of the account with an identifier or name.
func (a *app) accountID(api *client.Client, ref string) (string, error) {
	return named("account", ref, "keygate accounts list shows the names", api.Accounts(a.Context, client.AccountFilter{Query: ref}),
		func(one *client.Account) bool { return one.Name == ref },
		func(one *client.Account) match { return match{one.AccountID, []string{one.Name}} })
}

func accountFields(a *client.Account) []terminal.Field {
	return []terminal.Field{
		{"ACCOUNT ID", a.AccountID}, {"NAME", a.Name}, {"PLAN", string(a.Plan)}, {"STATE", string(a.State)}, {"HOSTS", strings.Join(a.Hosts, ", ")},
		{"AUDIT LOG KEPT", terminal.NumberOf(a.AuditRetentionDays, "day", "days")}, {"CREATED", terminal.Moment(&a.CreatedAt)},
	}
}

type accountsCreate struct {
	*app
	accountFlags
}

func newAccountsCreate(a *app) *cobra.Command {
	o := &accountsCreate{app: a}
	c := &cobra.Command{
		Use: "create --name NAME --plan starter|platform|scale", Short: "Create an account with its first key, which is shown only once",
		Example: "  keygate accounts create --name acme --plan starter --host '*.acme.example'", Args: noArgs, RunE: o.run,
	}
	o.add(c.Flags())
	return c
}

func (o *accountsCreate) run(c *cobra.Command, _ []string) error {
	if err := errors.Join(required("name", o.name), required("plan", o.plan)); err != nil {
		return usagef("%s", err)
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	in := client.CreateAccountRequest{Name: o.name, Plan: client.CreateAccountRequestPlan(o.plan)}
	if len(o.hosts) > 0 {
		in.Hosts = &o.hosts
	}
	made, err := api.CreateAccount(c.Context(), in)
	if err != nil {
		return err
	}
	err = o.PrintRecord(made, func() []terminal.Field {
		return append(accountFields(&made.Account), terminal.Field{"KEY ID", made.KeyID}, terminal.Field{"KEY", made.Secret})
	})
	if err != nil {
		return err
	}
	if made.Secret == "" {
		return fmt.Errorf("the account was created, but its key was lost with the connection: run keygate account key --account %q on the server's machine", made.Name)
	}
	o.remindToSave("key")
	return nil
}

func newAccountsList(a *app) *cobra.Command {
	filter := &client.AccountFilter{}
	c := &cobra.Command{Use: "list", Short: "List accounts, newest first", Args: noArgs}
	f := c.Flags()
	f.StringVar(&filter.State, "state", "", "only accounts in this `state`: active or suspended")
	f.StringVar(&filter.Plan, "plan", "", "only accounts with this `plan`: starter, platform or scale")
	f.StringVarP(&filter.Query, "query", "q", "", "only accounts whose name contains this `text`")
	return lists(a, c, lister[client.Account]{
		options: &filter.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Account, error], error) {
			return api.Accounts(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "ACCOUNT ID"}, {Name: "NAME", Flex: true}, {Name: "PLAN"}, {Name: "STATE"}, {Name: "HOSTS", Rank: 2, Flex: true}, {Name: "CREATED", Rank: 1},
		},
		row: func(one *client.Account) []string {
			return []string{one.AccountID, one.Name, string(one.Plan), string(one.State), strings.Join(one.Hosts, ","), a.When(&one.CreatedAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "accounts", "Create one: keygate accounts create --name NAME --plan PLAN")
		},
	})
}

func newAccountsGet(a *app) *cobra.Command {
	return shows(oneAccount(a), &cobra.Command{Use: "get ACCOUNT_ID", Short: "Show an account"}, (*client.Client).AccountByID, accountFields)
}

type accountsUpdate struct {
	name, plan string
	hosts      []string
}

func newAccountsUpdate(a *app) *cobra.Command {
	o := &accountsUpdate{}
	c := &cobra.Command{
		Use: "update ACCOUNT_ID", Short: "Change the name, plan or host patterns of an account",
		Example: "  keygate accounts update acme --plan scale --host '*.acme.example' --host acme.example",
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the account")
	f.StringVar(&o.plan, "plan", "", "`plan`: starter, platform or scale")
	f.StringArrayVar(&o.hosts, "host", nil, "`pattern` of the hostnames that its gateways may take; may be repeated, replaces all; '' removes them")
	return shows(oneAccount(a), c, func(api *client.Client, ctx context.Context, id string) (*client.Account, error) {
		p, err := o.patch(f)
		if err != nil {
			return nil, err
		}
		return api.UpdateAccount(ctx, id, p)
	}, accountFields)
}

// patch returns the changes that the flags ask for, at least one.
func (o *accountsUpdate) patch(f *pflag.FlagSet) (p client.AccountPatch, err error) {
	if f.Changed("name") {
		p.Name = client.Set(o.name)
	}
	if f.Changed("plan") {
		p.Plan = client.Set(o.plan)
	}
	if f.Changed("host") {
		p.Hosts = client.Set(slices.DeleteFunc(o.hosts, func(h string) bool { return h == "" }))
	}
	if p.Name.IsZero() && p.Plan.IsZero() && p.Hosts.IsZero() {
		err = usagef("nothing to change: give --name, --plan or --host")
	}
	return p, err
}

// newAccountsState returns the command that sets the state of an account.
func newAccountsState(a *app, verb, state, short string) *cobra.Command {
	set := func(api *client.Client, ctx context.Context, id string) (*client.Account, error) {
		return api.UpdateAccount(ctx, id, client.AccountPatch{State: client.Set(state)})
	}
	return shows(oneAccount(a), &cobra.Command{Use: verb + " ACCOUNT_ID", Short: short}, set, accountFields)
}

func newAccountsDelete(a *app) *cobra.Command {
	return destroys(oneAccount(a), &cobra.Command{Use: "delete ACCOUNT_ID", Short: "Delete a suspended account with everything of it but its audit log"},
		destroyer[client.Account]{"delete", (*client.Client).AccountByID, lostWithAccount, (*client.Client).DeleteAccount, accountLabel, accountFields})
}

func lostWithAccount(_ context.Context, _ *client.Client, one *client.Account) (lost, error) {
	return lost{[]string{"all of its gateways, routes, keys, webhooks, events and reports"}, one.Name}, nil
}
