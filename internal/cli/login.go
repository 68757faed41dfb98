package cli

import (
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

type login struct {
	*app
	name, gateway string
}

func newLogin(a *app) *cobra.Command {
	o := &login{app: a}
	c := &cobra.Command{
		Use:   "login --url URL",
		Short: "Save a server and a key for it as the current context",
		Long: `Save a server and a key for it as the current context.

The key is read from a prompt, from standard input or from --api-key-file. If the
server accepts it, it is saved in a file in your configuration directory that only
you can read.`,
		Example: "  keygate login --url https://keygate.example.com\n  keygate login --url http://127.0.0.1:8081 < keygate-data/admin.key",
		Args:    noArgs,
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.name, "name", "", "`name` of the context (default: the server's host and port)")
	c.Flags().StringVar(&o.gateway, "gateway", "", "`id`, name or hostname of the gateway that is the default of --gateway in this context")
	return c
}

func (o *login) run(c *cobra.Command, _ []string) error {
	address, err := o.givenURL()
	if err != nil {
		return err
	}
	if err := required("url", address); err != nil {
		return err
	}
	var key string
	if o.keyFile != "" {
		key, err = o.givenKey()
	} else {
		key, err = o.readSecret("Account-level key for "+address+": ", "key")
	}
	if err != nil {
		return err
	}
	access := serverAccess{URL: address, Key: key}
	if file := o.givenCAFile(); file != "" {
		if access.CAFile, err = filepath.Abs(file); err != nil {
			return err
		}
	}
	api, err := o.clientOf(access)
	if err != nil {
		return err
	}
	account, err := api.Account(c.Context())
	if err != nil {
		return err
	}
	if o.gateway != "" {
		if access.Gateway, err = o.gatewayID(api, o.gateway); err != nil {
			return err
		}
		if _, err := api.Gateway(c.Context(), access.Gateway); err != nil {
			return err
		}
	}
	name := o.name
	if name == "" {
		if u, err := url.Parse(address); err == nil {
			name = u.Host
		}
	}
	contexts, err := o.readContexts()
	if err != nil {
		return err
	}
	contexts.Contexts[name], contexts.Current = access, name
	if err := o.writeContexts(contexts); err != nil {
		return err
	}
	o.Say("Logged in to %s as key %s (%s) of account %s. The current context is %s.",
		address, terminal.Clean(account.Key.Name), account.Key.Scope, terminal.Clean(account.Name), terminal.Clean(name))
	return nil
}
