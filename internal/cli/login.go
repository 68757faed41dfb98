package cli

import (
	"context"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

type login struct {
	*app
	name, gateway string
	sso, device   bool
	pause         func(context.Context, time.Duration) error // between two questions of a device
}

func newLogin(a *app) *cobra.Command {
	o := &login{app: a, pause: wait}
	c := &cobra.Command{
		Use:   "login --url URL",
		Short: "Save a server and a key or token for it as the current context",
		Long: `Save a server and a key or token for it as the current context.

The key is read from a prompt, from standard input or from --api-key-file. If the
server accepts it, it is saved in a file in your configuration directory that only
you can read.

With --sso you sign in through the identity provider of the server, in a browser on
this machine, and the context gets a token in place of a key. It allows what your role
allows, and lasts 12 hours. With --device the browser may be on another machine: you
type there the code that this command prints. Without --url, both sign in again to the
server of the current context.`,
		Example: "  keygate login --url https://keygate.example.com\n  keygate login --url http://127.0.0.1:8081 < keygate-data/admin.key\n  keygate login --url https://keygate.example.com --sso\n  keygate login --device",
		Args:    noArgs,
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.name, "name", "", "`name` of the context (default: the server's host and port)")
	c.Flags().StringVar(&o.gateway, "gateway", "", "`id`, name or hostname of the gateway that is the default of --gateway in this context")
	c.Flags().BoolVar(&o.sso, "sso", false, "sign in as a user, in a browser on this machine")
	c.Flags().BoolVar(&o.device, "device", false, "sign in as a user, in a browser on any machine")
	return c
}

func (o *login) run(c *cobra.Command, _ []string) error {
	switch {
	case o.sso && o.device:
		return usagef("--sso and --device exclude each other: give one of them")
	case (o.sso || o.device) && o.keyFile != "":
		return usagef("--api-key-file has a key: give it or --sso or --device, not both")
	}
	access, err := o.server()
	if err != nil {
		return err
	}
	if access.Key, err = o.credential(c.Context(), access); err != nil {
		return err
	}
	address := access.URL
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
	former := contexts.Contexts[name]
	contexts.Contexts[name], contexts.Current = access, name
	if err := o.writeContexts(contexts); err != nil {
		return err
	}
	if former.Key != access.Key {
		o.forget(c.Context(), former)
	}
	who := "key " + terminal.Clean(account.Key.Name) + " (" + account.Scope() + ")"
	if account.User != nil {
		who = "user " + terminal.Clean(userName(account.User)) + " (" + account.User.Role + ")"
	}
	o.Say("Logged in to %s as %s of account %s. The current context is %s.", address, who, terminal.Clean(account.Name), terminal.Clean(name))
	return nil
}

// server returns the server to log in to, without a key. To sign in as a user again, it may be that of a context, which then
// keeps its name and its default gateway.
func (o *login) server() (access serverAccess, err error) {
	if access.URL, err = o.givenURL(); err != nil {
		return access, err
	}
	if access.URL == "" && (o.sso || o.device) {
		used, err := o.currentContext("")
		if err != nil {
			return access, err
		}
		access = used.serverAccess
		access.Key = ""
		if o.name == "" {
			o.name = used.context
		}
	}
	if err := required("url", access.URL); err != nil {
		return access, err
	}
	if file := o.givenCAFile(); file != "" {
		access.CAFile, err = filepath.Abs(file)
	}
	return access, err
}

// credential returns the key that was given, or the token of the user who signs in.
func (o *login) credential(ctx context.Context, access serverAccess) (string, error) {
	switch {
	case o.sso || o.device:
		return o.signInUser(ctx, access)
	case o.keyFile != "":
		return o.givenKey()
	}
	return o.readSecret("Account-level key for "+access.URL+": ", "key")
}
