package cli

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

func newAccount(a *app) *cobra.Command {
	c := newGroup("account", "Create accounts and their keys directly in the store on this machine",
		newAccountCreate(a), newAccountKey(a))
	c.Long = `Create accounts and their keys directly in the store on this machine, without a key. A
server may be running on it; it applies the change within a second.

To list, change, suspend or delete accounts, call a server: see keygate accounts --help.`
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && slices.Contains([]string{"list", "ls", "get", "update", "suspend", "resume", "delete"}, args[0]) {
			return usagef("there is no command %q: did you mean keygate accounts %s?", c.CommandPath()+" "+args[0], args[0])
		}
		return group(c, args)
	}
	return c
}

// storeCommand is a command that opens the store directly, without a server.
type storeCommand struct {
	*app
	loader *config.Loader
}

func (o *storeCommand) load() (*config.Config, *slog.Logger, error) {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return nil, nil, err
	}
	// Warnings and errors only: the rest is of interest in a server.
	return settings, telemetry.NewLogger(o.Err, "warn", settings.LogFormat), nil
}

type accountCreate struct {
	storeCommand
	name, plan string
	hosts      []string
}

func newAccountCreate(a *app) *cobra.Command {
	o := &accountCreate{storeCommand: storeCommand{app: a}}
	c := &cobra.Command{
		Use:     "create --name NAME --plan starter|platform|scale",
		Short:   "Create an account with its first key, which is shown only once",
		Example: "  keygate account create --name acme --plan starter --host '*.acme.example'",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the account")
	f.StringVar(&o.plan, "plan", "", "`plan`: starter, platform or scale")
	f.StringArrayVar(&o.hosts, "host", nil, "`pattern` of the hostnames that its gateways may take, such as *.acme.example; may be repeated")
	o.loader = config.Register(f)
	return c
}

func (o *accountCreate) run(c *cobra.Command, _ []string) error {
	if err := required("name", o.name); err != nil {
		return err
	}
	if err := required("plan", o.plan); err != nil {
		return err
	}
	settings, log, err := o.load()
	if err != nil {
		return err
	}
	created, err := server.CreateAccount(c.Context(), settings, log, o.name, o.plan, o.hosts)
	if err != nil {
		return err
	}
	err = o.PrintRecord(created, func() []terminal.Field {
		return []terminal.Field{
			{"ACCOUNT ID", created.AccountID}, {"NAME", created.Name}, {"PLAN", created.Plan}, {"HOSTS", strings.Join(created.Hosts, ", ")},
			{"KEY ID", created.KeyID}, {"KEY", created.Key},
		}
	})
	if err != nil {
		return err
	}
	o.remindToSave("key")
	return nil
}

// remindToSave prints a reminder that a secret is shown only once, if it was shown to a
// person, or if the format left it out.
func (a *app) remindToSave(what string) {
	switch a.Format {
	case terminal.FormatTable, terminal.FormatWide:
		a.Say("The %s is shown only once. Save it now.", what)
	case terminal.FormatID, terminal.FormatName:
		a.Say("The %s was not printed and cannot be shown again. -o json prints it, too.", what)
	}
}

type accountKey struct {
	storeCommand
	account, name string
}

func newAccountKey(a *app) *cobra.Command {
	o := &accountKey{storeCommand: storeCommand{app: a}}
	c := &cobra.Command{
		Use:     "key --account NAME --name NAME",
		Short:   "Create an account-level key with the scope admin",
		Long:    "Create an account-level key with the scope admin. The key is shown only once.\nUse this also to recover when the admin key is lost.",
		Example: "  keygate account key --account default --name recovered",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.account, "account", "", "`name` of the account")
	f.StringVar(&o.name, "name", "", "display `name` of the key")
	o.loader = config.Register(f)
	return c
}

func (o *accountKey) run(c *cobra.Command, _ []string) error {
	if err := required("account", o.account); err != nil {
		return err
	}
	if err := required("name", o.name); err != nil {
		return err
	}
	settings, log, err := o.load()
	if err != nil {
		return err
	}
	created, err := server.CreateAccountKey(c.Context(), settings, log, o.account, o.name)
	if err != nil {
		return err
	}
	err = o.PrintRecord(created, func() []terminal.Field {
		return []terminal.Field{{"KEY ID", created.KeyID}, {"NAME", created.Name}, {"SCOPE", created.Scope}, {"KEY", created.Key}}
	})
	if err != nil {
		return err
	}
	o.remindToSave("key")
	return nil
}
