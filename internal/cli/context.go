package cli

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

func newContext(a *app) *cobra.Command {
	return newGroup("context", "Manage the servers saved by keygate login",
		newContextList(a), newContextUse(a), newContextSet(a), newContextDelete(a))
}

// contextRecord is the output for a context. It never contains the key.
type contextRecord struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
	Gateway string `json:"gateway_id,omitempty"`
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the contexts", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		f, err := a.readContexts()
		if err != nil {
			return err
		}
		records := func(yield func(contextRecord, error) bool) {
			for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
				if !yield(contextRecord{name, f.Contexts[name].URL, name == f.Current, f.Contexts[name].Gateway}, nil) {
					return
				}
			}
		}
		return terminal.PrintList(a.Console, 0, records, terminal.Listing[contextRecord]{
			Columns: []terminal.Column{{Name: "CURRENT"}, {Name: "NAME", Flex: true}, {Name: "URL", Flex: true}, {Name: "GATEWAY", Rank: 1}},
			Row: func(r *contextRecord) []string {
				mark := ""
				if r.Current {
					mark = "*"
				}
				return []string{mark, r.Name, r.URL, r.Gateway}
			},
			Empty: "No contexts. Create one: keygate login --url URL",
		})
	}}
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{Use: "use NAME", Short: "Make a context the current one", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		f, name, err := a.contextOf(args)
		if err != nil {
			return err
		}
		f.Current = name
		if err := a.writeContexts(f); err != nil {
			return err
		}
		a.Say("The context %s is now the current one.", terminal.Clean(name))
		return nil
	}}
}

func newContextSet(a *app) *cobra.Command {
	var gateway string
	c := &cobra.Command{
		Use: "set [NAME] --gateway GATEWAY", Short: "Set the default of --gateway for a context, by default the current one",
		Long:    "Set the default of --gateway for a context, by default the current one. An empty value\nremoves it.",
		Example: "  keygate context set --gateway orders\n  keygate context set staging --gateway ''", Args: atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("gateway") {
				return required("gateway", "")
			}
			return a.setGateway(args, gateway)
		},
	}
	c.Flags().StringVar(&gateway, "gateway", "", "`id`, name or hostname of the gateway")
	return c
}

// setGateway sets the default gateway of the context that args name.
func (a *app) setGateway(args []string, ref string) error {
	if len(args) > 0 {
		a.context = args[0]
	}
	used, err := a.currentContext("")
	if err != nil {
		return err
	}
	if used.context == "" {
		return &notFoundError{"there is no current context: give the name of one, or run keygate login"}
	}
	found := ""
	if ref != "" {
		api, err := a.clientOf(used.serverAccess)
		if err != nil {
			return err
		}
		if found, err = a.gatewayID(api, ref); err != nil {
			return err
		}
		if _, err := api.Gateway(a.Context, found); err != nil {
			return err
		}
	}
	f, name, err := a.contextOf([]string{used.context})
	if err != nil {
		return err
	}
	one := f.Contexts[name]
	one.Gateway = found
	f.Contexts[name] = one
	if err := a.writeContexts(f); err != nil {
		return err
	}
	if found == "" {
		a.Say("The context %s has no default gateway now.", terminal.Clean(name))
	} else {
		a.Say("The default gateway of the context %s is now %s.", terminal.Clean(name), found)
	}
	return nil
}

func newContextDelete(a *app) *cobra.Command {
	return a.confirmFlag(&cobra.Command{Use: "delete NAME", Short: "Delete a context and its key, or revoke its token", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		f, name, err := a.contextOf(args)
		if err != nil {
			return err
		}
		err = a.Confirm(func() (terminal.Loss, error) {
			return terminal.Loss{Verb: "delete", What: "context " + name, With: []string{"the key for " + f.Contexts[name].URL + " that is saved in it"}}, nil
		})
		if err != nil {
			return err
		}
		former := f.Contexts[name]
		delete(f.Contexts, name)
		was := ""
		if f.Current == name {
			f.Current, was = "", ", which was the current one"
		}
		if err := a.writeContexts(f); err != nil {
			return err
		}
		a.forget(a.Context, former)
		return a.Destroyed("delete", "context "+name+was, func() error { return nil })
	}})
}

// contextOf returns the contexts, and the name of the context that args name.
func (a *app) contextOf(args []string) (f *contextFile, name string, err error) {
	if len(args) == 0 {
		return nil, "", usagef("no context given: give its name as the argument")
	}
	if f, err = a.readContexts(); err != nil {
		return nil, "", err
	}
	if _, ok := f.Contexts[args[0]]; !ok {
		return nil, "", f.missing(args[0])
	}
	return f, args[0], nil
}
