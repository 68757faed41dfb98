package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
)

func newSpec(a *app) *cobra.Command {
	return newGroup("spec", "Push OpenAPI documents, list revisions and roll back",
		newSpecPush(a), newSpecGet(a), newSpecRevisions(a), newSpecRollback(a))
}

type specPush struct {
	*app
	gateway string
	refRoot string
	dryRun  bool
	verbose bool
}

func newSpecPush(a *app) *cobra.Command {
	o := &specPush{app: a}
	c := &cobra.Command{
		Use:     "push --gateway ID FILE|-",
		Short:   "Replace a gateway's routes with the operations of an OpenAPI document",
		Example: "  keygate spec push --gateway gw_01j… openapi.yaml",
		Args:    atMost(1),
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, but change nothing")
	refRootFlag(c.Flags(), &o.refRoot)
	verboseFlag(c.Flags(), &o.verbose)
	return c
}

func refRootFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "ref-root", "", "`directory` below which the $refs of path items may lead to files (default that of the document)")
}

func verboseFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "verbose", false, fmt.Sprintf("list the routes that change, even if they are more than %d", maxRoutesShown))
}

func (o *specPush) run(c *cobra.Command, args []string) error {
	name, err := fileArgument(args)
	if err != nil {
		return err
	}
	d, err := o.readSpec(name, o.refRoot)
	if err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if o.gateway, err = o.gatewayID(api, o.gateway); err != nil {
		return err
	}
	p, err := inTurn(c.Context(), o.app, func() (*client.Push, error) {
		return api.PushSpec(c.Context(), o.gateway, d.content, o.dryRun)
	})
	if err != nil {
		return o.mistakes(d, err)
	}
	return o.printPush(p, o.dryRun, o.verbose)
}

func fileArgument(args []string) (string, error) {
	if len(args) == 0 {
		return "", usagef("no file given: give its name, or - for standard input")
	}
	return args[0], nil
}

// printWarnings prints what the server considers a likely mistake to standard error.
func (a *app) printWarnings(warnings []string) {
	for _, w := range warnings {
		a.say("warning: %s", clean(w))
	}
}

func newSpecGet(a *app) *cobra.Command {
	o := &gatewayCommand{app: a, optional: true}
	return o.flag(&cobra.Command{Use: "get --gateway ID", Short: "Print the document that was pushed last, byte for byte", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.gateway(args)
		if err != nil {
			return err
		}
		content, err := api.Spec(c.Context(), id)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(content)
		return err
	}})
}

type specRevisions struct {
	*app
	gateway string
	options client.ListOptions
	limit   int
}

func newSpecRevisions(a *app) *cobra.Command {
	o := &specRevisions{app: a}
	c := &cobra.Command{
		Use: "revisions --gateway ID [NUMBER]", Short: "List the revisions of a gateway, newest first, or show one", Args: atMost(1), RunE: o.run,
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	limitFlag(c.Flags(), &o.limit)
	return c
}

func (o *specRevisions) run(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return o.one(c, args[0])
	}
	api, err := o.list(&o.options, o.limit)
	if err != nil {
		return err
	}
	if o.gateway, err = o.gatewayID(api, o.gateway); err != nil {
		return err
	}
	return printList(o.app, o.limit, api.Revisions(c.Context(), o.gateway, o.options), listing[client.Revision]{
		columns: []column{
			{name: "NUMBER"}, {name: "SOURCE", rank: 1}, {name: "KIND"}, {name: "AUTHOR", rank: 2, flex: true}, {name: "CREATED"},
			{name: "ADDED"}, {name: "REMOVED"}, {name: "CHANGED"},
		},
		row: func(r *client.Revision) []string {
			return []string{
				strconv.FormatInt(r.Number, 10), string(r.Source), string(r.Kind), r.Author, o.when(&r.CreatedAt),
				fmt.Sprint(r.Added), fmt.Sprint(r.Removed), fmt.Sprint(r.Changed),
			}
		},
		empty: "No revisions. Push an OpenAPI document: keygate spec push FILE",
	})
}

func (o *specRevisions) one(c *cobra.Command, arg string) error {
	n, err := revisionNumber(arg)
	if err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if o.gateway, err = o.gatewayID(api, o.gateway); err != nil {
		return err
	}
	r, err := api.Revision(c.Context(), o.gateway, n)
	if err != nil {
		return err
	}
	return o.printRecord(r, func() []field {
		return []field{
			{"NUMBER", strconv.FormatInt(r.Number, 10)}, {"REVISION ID", r.RevisionID}, {"SOURCE", string(r.Source)}, {"KIND", string(r.Kind)},
			{"AUTHOR", r.Author}, {"COMMIT", str(r.Commit)}, {"CREATED", moment(&r.CreatedAt)},
			{"ADDED", fmt.Sprint(r.Added)}, {"REMOVED", fmt.Sprint(r.Removed)}, {"CHANGED", fmt.Sprint(r.Changed)},
		}
	})
}

func revisionNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, usagef("%q is not a revision number: run keygate spec revisions to list them", s)
	}
	return n, nil
}

type specRollback struct {
	*app
	gateway string
	verbose bool
}

func newSpecRollback(a *app) *cobra.Command {
	o := &specRollback{app: a}
	c := &cobra.Command{
		Use: "rollback --gateway ID NUMBER", Short: "Restore the routes of an earlier revision, as a new revision", Args: atMost(1), RunE: o.run,
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	verboseFlag(c.Flags(), &o.verbose)
	return c
}

func (o *specRollback) run(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no revision given: give its number")
	}
	n, err := revisionNumber(args[0])
	if err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if o.gateway, err = o.gatewayID(api, o.gateway); err != nil {
		return err
	}
	p, err := inTurn(c.Context(), o.app, func() (*client.Push, error) { return api.Rollback(c.Context(), o.gateway, n, false) })
	if err != nil {
		return err
	}
	return o.printPush(p, false, o.verbose)
}
