package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

func newContext(a *app) *cobra.Command {
	return newGroup("context", "Manage the servers saved by keygate login",
		newContextList(a), newContextUse(a), newContextDelete(a))
}

// contextRecord is the output for a context. It never contains the key.
type contextRecord struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the contexts", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		f, err := a.readContexts()
		if err != nil {
			return err
		}
		records := func(yield func(contextRecord, error) bool) {
			for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
				if !yield(contextRecord{name, f.Contexts[name].URL, name == f.Current}, nil) {
					return
				}
			}
		}
		return printList(a, 0, records, []string{"CURRENT", "NAME", "URL"}, func(r *contextRecord) []string {
			mark := ""
			if r.Current {
				mark = "*"
			}
			return []string{mark, r.Name, r.URL}
		})
	}}
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{Use: "use NAME", Short: "Make a context the current one", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		return a.changeContexts(args, func(f *contextFile, name string) string {
			f.Current = name
			return "The context " + clean(name) + " is now the current one."
		})
	}}
}

func newContextDelete(a *app) *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Delete a context and its key", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		return a.changeContexts(args, func(f *contextFile, name string) string {
			delete(f.Contexts, name)
			if f.Current == name {
				f.Current = ""
				return "The context " + clean(name) + " was deleted. There is no current context now."
			}
			return "The context " + clean(name) + " was deleted."
		})
	}}
}

// changeContexts applies change to the context that args name, saves the file and
// prints the message that change returned.
func (a *app) changeContexts(args []string, change func(f *contextFile, name string) string) error {
	if len(args) == 0 {
		return usagef("no context given: give its name as the argument")
	}
	f, err := a.readContexts()
	if err != nil {
		return err
	}
	if _, ok := f.Contexts[args[0]]; !ok {
		return &noContextError{args[0]}
	}
	done := change(f, args[0])
	if err := a.writeContexts(f); err != nil {
		return err
	}
	fmt.Fprintln(a.Err, done)
	return nil
}
