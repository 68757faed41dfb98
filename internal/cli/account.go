package cli

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

func newAccount(a *app) *cobra.Command {
	return newGroup("account", "Create accounts and their keys directly in the store on this machine",
		newAccountCreate(a), newAccountKey(a))
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
	err = o.printRecord(created, func() []field {
		return []field{
			{"ACCOUNT ID", created.AccountID}, {"NAME", created.Name}, {"PLAN", created.Plan}, {"HOSTS", strings.Join(created.Hosts, ", ")},
			{"KEY ID", created.KeyID}, {"KEY", created.Key},
		}
	})
	if err != nil {
		return err
	}
	o.remindToSaveKey()
	return nil
}

// remindToSaveKey prints a reminder that a key is shown only once, if it was
// shown to a person.
func (a *app) remindToSaveKey() {
	if a.output == "table" {
		fmt.Fprintln(a.Err, "The key is shown only once. Save it now.")
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
	err = o.printRecord(created, func() []field {
		return []field{{"KEY ID", created.KeyID}, {"NAME", created.Name}, {"SCOPE", created.Scope}, {"KEY", created.Key}}
	})
	if err != nil {
		return err
	}
	o.remindToSaveKey()
	return nil
}
