package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
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
	effect  bool
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
	effectFlag(c.Flags(), &o.effect)
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
	switch {
	case err != nil:
		return err
	case o.effect && !o.dryRun:
		return usagef("--effect is for a dry run: give --dry-run too")
	case o.Format == formatMarkdown && !o.dryRun:
		return usagef("-o markdown is for a dry run: give --dry-run too")
	}
	d, err := o.readSpec(name, o.refRoot)
	if err != nil {
		return err
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	p, err := inTurn(c.Context(), o.app, func() (*client.Push, error) {
		return api.PushSpec(c.Context(), o.gateway, d.content, o.dryRun, effectOptions(o.effect)...)
	})
	if err != nil {
		return o.mistakes(d, err)
	}
	if o.Format == formatMarkdown {
		return writeMarkdown(o.Out, "Changes of "+terminal.Code(d.name), []comparison{{push: p}})
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
		a.Say("warning: %s", terminal.Clean(w))
	}
}

func newSpecGet(a *app) *cobra.Command {
	o := defaultGatewayOr(a)
	c := &cobra.Command{Use: "get --gateway ID", Short: "Print the document that was pushed last, byte for byte"}
	return o.runs(c, func(ctx context.Context, api *client.Client, id string) error {
		content, err := api.Spec(ctx, id)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(content)
		return err
	})
}
