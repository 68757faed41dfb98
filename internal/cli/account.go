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
	return newGroup("account", "Make accounts and their keys in the store on this machine, beside a running server or without one",
		newAccountCreate(a), newAccountKey(a))
}

// storeCommand is a command that works on the store itself.
type storeCommand struct {
	*app
	loader *config.Loader
}

func (o *storeCommand) load() (*config.Config, *slog.Logger, error) {
	settings, err := o.loader.Load(o.Env)
	if err != nil {
		return nil, nil, err
	}
	// Only what goes wrong: the rest is of interest in a server alone.
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
		Short:   "Make an account with its first key, which is shown this once",
		Example: "  keygate account create --name acme --plan starter --host '*.acme.example'",
		Args:    noArgs,
		RunE:    o.run,
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "`name` of the account")
	f.StringVar(&o.plan, "plan", "", "`plan`: starter, platform or scale")
	f.StringArrayVar(&o.hosts, "host", nil, "`pattern` of the host names that its gateways may take, as in *.acme.example; give it again for more")
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
	made, err := server.CreateAccount(c.Context(), settings, log, o.name, o.plan, o.hosts)
	if err != nil {
		return err
	}
	err = o.printRecord(made, func() []field {
		return []field{
			{"ACCOUNT ID", made.AccountID}, {"NAME", made.Name}, {"PLAN", made.Plan}, {"HOSTS", strings.Join(made.Hosts, ", ")},
			{"KEY ID", made.KeyID}, {"KEY", made.Key},
		}
	})
	o.tellOnce(err)
	return err
}

// tellOnce reminds a person that a key is shown this once.
func (a *app) tellOnce(err error) {
	if err == nil && a.output == "table" {
		fmt.Fprintln(a.Err, "The key is shown this once. Keep it now.")
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
		Short:   "Make an account-level key with the scope admin; it is shown this once",
		Long:    "Make an account-level key with the scope admin; it is shown this once.\nThis is also the way back in when the admin key is lost.",
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
	made, err := server.CreateAccountKey(c.Context(), settings, log, o.account, o.name)
	if err != nil {
		return err
	}
	err = o.printRecord(made, func() []field {
		return []field{{"KEY ID", made.KeyID}, {"NAME", made.Name}, {"SCOPE", made.Scope}, {"KEY", made.Key}}
	})
	o.tellOnce(err)
	return err
}
