package cli

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

func newAccount(a *app) *cobra.Command {
	c := newGroup("account", "Change the account of the key; create accounts in the store on this machine",
		newAccountGet(a), newAccountUpdate(a), newAccountCreate(a), newAccountKey(a))
	c.Long = `Show and change the account of the key that commands use: get and update call a server.

create and key work without a key: they create accounts and their keys directly in the
store on this machine. A server may be running on it; it applies the change within a second.

To list, change, suspend or delete all accounts, see keygate accounts --help.`
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && slices.Contains([]string{"list", "ls", "suspend", "resume", "delete"}, args[0]) {
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

// withSettings makes c a command on this machine that takes the settings of a server, as flags and from the environment.
func (a *app) withSettings(c *cobra.Command, run func(ctx context.Context, settings *config.Config, log *slog.Logger, args []string) error) *cobra.Command {
	o := &storeCommand{app: a, loader: config.Register(c.Flags())}
	c.RunE = func(c *cobra.Command, args []string) error {
		settings, log, err := o.load()
		if err != nil {
			return err
		}
		return run(c.Context(), settings, log, args)
	}
	return c
}

// accountFlags are the flags of a creation of an account.
type accountFlags struct {
	name, plan string
	hosts      []string
}

func (o *accountFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.name, "name", "", "`name` of the account")
	f.StringVar(&o.plan, "plan", "", "`plan`: starter, platform or scale")
	f.StringArrayVar(&o.hosts, "host", nil, "`pattern` of the hostnames that its gateways may take, such as *.acme.example; may be repeated")
}

func newAccountCreate(a *app) *cobra.Command {
	var o accountFlags
	c := &cobra.Command{
		Use:     "create --name NAME --plan starter|platform|scale",
		Short:   "Create an account with its first key, which is shown only once",
		Example: "  keygate account create --name acme --plan starter --host '*.acme.example'",
		Args:    noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			return cmp.Or(required("name", o.name), required("plan", o.plan))
		},
	}
	o.add(c.Flags())
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, log *slog.Logger, _ []string) error {
		created, err := server.CreateAccount(ctx, settings, log, o.name, o.plan, o.hosts)
		if err != nil {
			return err
		}
		return a.printNew("key", created, []terminal.Field{
			{"ACCOUNT ID", created.AccountID}, {"NAME", created.Name}, {"PLAN", created.Plan}, {"HOSTS", strings.Join(created.Hosts, ", ")},
			{"KEY ID", created.KeyID}, {"KEY", created.Key},
		})
	})
}

// printNew prints a record with a secret, which is shown only once.
func (a *app) printNew(secret string, record any, fields []terminal.Field) error {
	if err := a.PrintRecord(record, func() []terminal.Field { return fields }); err != nil {
		return err
	}
	a.remindToSave(secret)
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

func newAccountKey(a *app) *cobra.Command {
	var account, name string
	c := &cobra.Command{
		Use:     "key --account NAME --name NAME",
		Short:   "Create an account-level key with the scope admin",
		Long:    "Create an account-level key with the scope admin. The key is shown only once.\nUse this also to recover when the admin key is lost.",
		Example: "  keygate account key --account default --name recovered",
		Args:    noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			return cmp.Or(required("account", account), required("name", name))
		},
	}
	c.Flags().StringVar(&account, "account", "", "`name` of the account")
	c.Flags().StringVar(&name, "name", "", "display `name` of the key")
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, log *slog.Logger, _ []string) error {
		created, err := server.CreateAccountKey(ctx, settings, log, account, name)
		if err != nil {
			return err
		}
		return a.printNew("key", created, []terminal.Field{
			{"KEY ID", created.KeyID}, {"NAME", created.Name}, {"SCOPE", created.Scope}, {"KEY", created.Key},
		})
	})
}
