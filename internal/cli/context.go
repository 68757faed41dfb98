package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

func newContext(a *app) *cobra.Command {
	return newGroup("context", "List, choose and delete the servers that login has kept",
		newContextList(a), newContextUse(a), newContextDelete(a))
}

// contextRecord is what is shown of a context: never its key.
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
		return printList(a, 0, records, []string{"IN USE", "NAME", "URL"}, func(r *contextRecord) []string {
			mark := ""
			if r.Current {
				mark = "*"
			}
			return []string{mark, r.Name, r.URL}
		})
	}}
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{Use: "use NAME", Short: "Use a context from now on", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		return a.changeContexts(args, func(f *contextFile, name string) string {
			f.Current = name
			return "The context " + clean(name) + " is in use."
		})
	}}
}

func newContextDelete(a *app) *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Forget a context and its key", Args: atMost(1), RunE: func(_ *cobra.Command, args []string) error {
		return a.changeContexts(args, func(f *contextFile, name string) string {
			delete(f.Contexts, name)
			if f.Current == name {
				f.Current = ""
				return "The context " + clean(name) + " is gone. None is in use now."
			}
			return "The context " + clean(name) + " is gone."
		})
	}}
}

// changeContexts changes the file by the context that args name, and tells what
// was done.
func (a *app) changeContexts(args []string, change func(f *contextFile, name string) string) error {
	if len(args) == 0 {
		return usagef("which context? Give its name.")
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
