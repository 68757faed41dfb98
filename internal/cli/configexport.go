package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
)

type configExport struct {
	*one
	all   bool
	force bool
}

func newConfigExport(a *app) *cobra.Command {
	o := &configExport{one: defaultGatewayOr(a)}
	c := o.add(&cobra.Command{
		Use: "export --gateway ID | --all DIR", Short: "Export gateways with their routes as configuration files",
		Long: `Print a gateway with its routes as a configuration file, or write a file for every gateway
into a directory, and one for all plans. Secrets are exported as ***; applied to the gateway that has the secret, it is
kept. Applying an export changes nothing.

A file is named after its gateway. If a file of the directory names the gateway already, that one is
overwritten, whatever its name, but only after a question on a terminal or with --force.`,
		Example: "  keygate config export orders > orders.yaml\n  keygate config export --all gateways/",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !o.all && o.force:
				return usagef("--force is only used with --all")
			case !o.all:
				return o.exportOne(c.Context(), args)
			case o.ref != "":
				return usagef("give --gateway or --all, not both")
			case len(args) == 0:
				return usagef("no directory given: give the directory for the files, as in keygate config export --all gateways")
			}
			return o.exportAll(c.Context(), args[0])
		},
	})
	c.Flags().BoolVar(&o.all, "all", false, "write a file for every gateway into the directory that is the argument")
	c.Flags().BoolVar(&o.force, "force", false, "with --all: overwrite files")
	return c
}

// exportOne prints one gateway.
func (o *configExport) exportOne(ctx context.Context, args []string) error {
	id, api, err := o.open(args)
	if err != nil {
		return err
	}
	content, err := api.Config(ctx, id)
	if err != nil {
		return err
	}
	_, err = o.Out.Write(content)
	return err
}

// exportAll writes a file for every gateway into a directory. Nothing is written before every
// gateway was read and overwriting was confirmed.
func (o *configExport) exportAll(ctx context.Context, dir string) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	x, err := apply.New(apply.Config{Client: api, Busy: o.sayBusy}).Export(ctx, dir)
	var ambiguous *apply.AmbiguousError
	switch {
	case errors.As(err, &ambiguous):
		return &ambiguousError{fmt.Sprintf("%s\nFiles that name it could not be applied. Rename the others first: keygate gateways update ID --name NAME", ambiguousGateway(ambiguous))}
	case err != nil:
		return err
	}
	defer func() { _ = x.Close() }() // each file was closed
	for _, s := range x.Strays {
		o.Say("%s", terminal.Clean(fmt.Sprintf("warning: %s names the gateway %s, which does not exist: applying the directory would create it", s.File, s.Gateway)))
	}
	o.printWarnings(x.Warnings)
	if err := o.mayOverwrite(x.Changed, o.force); err != nil {
		return err
	}
	written, err := x.Write()
	if err != nil {
		return err
	}
	if !o.ForPeople() {
		return o.PrintData(x.Files)
	}
	gateways, more := len(x.Files), ""
	for _, f := range x.Files {
		switch f.Kind {
		case apply.Gateway:
			continue
		case apply.Plan:
			more = " and " + terminal.NumberOf(int64(f.Plans), "plan", "plans") + more
		case apply.Issuer:
			more += " and " + terminal.NumberOf(int64(f.Issuers), "issuer", "issuers")
		}
		gateways--
	}
	what := terminal.NumberOf(int64(gateways), "gateway", "gateways") + more
	o.Say("Exported %s to %s: %d written, %d unchanged.", what, terminal.Clean(dir), written, len(x.Files)-written)
	return nil
}

// mayOverwrite asks whether files may be overwritten.
func (a *app) mayOverwrite(files []string, force bool) error {
	if len(files) == 0 || force {
		return nil
	}
	for _, f := range files[:min(len(files), maxCandidates)] {
		a.Say("%s", terminal.Clean(f+" exists and has other content."))
	}
	if len(files) > maxCandidates {
		a.Say("So do %d more files.", len(files)-maxCandidates)
	}
	if !a.Asks() {
		return fault.New(fault.Conflict, "nothing was written: give --force to overwrite files")
	}
	return a.Answered("Overwrite? What differs in them is lost, such as ${env:NAME} and comments. [y/N] ", terminal.IsYes)
}
