package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newConfig(a *app) *cobra.Command {
	return newGroup("config", "Manage gateways with configuration files",
		newConfigValidate(a), newConfigDiff(a), newConfigApply(a), newConfigExport(a), newConfigSchema(a))
}

// aboutDirs is the part of help texts about directories.
const aboutDirs = `Of a directory, the files that are directly in it and end with .yaml, .yml or .json are
read, in the order of their names. Each must name its gateway, and no two the same one,
but for one file that has the plans.`

func newConfigValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE|DIR|-...", Short: "Validate configuration files offline",
		Long: `Validate configuration files offline. All mistakes of all files are printed, each as
file:line:column: field: what is wrong. ${env:NAME} is replaced from your environment.

` + aboutDirs,
		Example: "  keygate config validate orders.yaml\n  keygate config validate gateways/",
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := fileArgument(args); err != nil {
				return err
			}
			sets, err := a.readConfigs(args...)
			if err != nil {
				return err
			}
			a.sayValid(sets)
			return nil
		},
	}
}

// sayValid says what valid files have.
func (a *app) sayValid(sets []*apply.Set) {
	files, routes, plans, issuers, name := 0, 0, 0, 0, ""
	for _, set := range sets {
		for _, f := range set.Files {
			name, files, routes = f.Name, files+1, routes+f.Routes()
			for _, w := range f.Warnings() {
				a.Say("warning: %s: %s", terminal.Clean(f.Name), terminal.Clean(w))
			}
		}
		if set.Plans != nil {
			name, files, plans = set.Plans.Name, files+1, plans+set.Plans.Plans()
		}
		if set.Issuers != nil {
			name, files, issuers = set.Issuers.Name, files+1, issuers+set.Issuers.Issuers()
		}
	}
	var parts []string
	if routes > 0 || plans+issuers == 0 {
		parts = append(parts, terminal.NumberOf(int64(routes), "route", "routes"))
	}
	if plans > 0 {
		parts = append(parts, terminal.NumberOf(int64(plans), "plan", "plans"))
	}
	if issuers > 0 {
		parts = append(parts, terminal.NumberOf(int64(issuers), "issuer", "issuers"))
	}
	if files == 1 {
		a.Say("%s is valid: %s.", terminal.Clean(name), parts[0])
	} else {
		a.Say("%d files are valid: %s.", files, strings.Join(parts, ", "))
	}
}

// configRun is a run of config diff or config apply.
type configRun struct {
	*app
	gateway string
	prune   bool
	dryRun  bool
	effect  bool
	verbose bool

	api         *client.Client
	set         *apply.Set
	applier     *apply.Applier
	differences []*apply.Difference
}

// whichGateway is the part of help texts about the gateway that a file is for.
const whichGateway = `The gateway of a file is that of --gateway, else the one that the file names
(gateway.name). If no gateway has that name, it is created. Only for a file that names none
it is the default gateway of other commands: that of KEYGATE_GATEWAY or the context, or the
only one.

` + aboutDirs

func (o *configRun) command(c *cobra.Command) *cobra.Command {
	c.Args = atMost(1)
	verboseFlag(c.Flags(), &o.verbose)
	c.Flags().StringVar(&o.gateway, "gateway", "", "`id`, name or hostname of the gateway (default: the one that the file names); not with a directory")
	c.Flags().BoolVar(&o.prune, "prune", false, "with a directory: delete gateways that were applied from files before and are not in it, and plans that its file of plans lacks")
	return c
}

func newConfigDiff(a *app) *cobra.Command {
	o := &configRun{app: a, dryRun: true}
	c := o.command(&cobra.Command{
		Use:   "diff [--gateway ID] FILE|DIR|-",
		Short: "Show what applying configuration files would change; the exit status is 3 if anything would",
		Long: `Show what applying configuration files would change. The exit status is 3 if anything
would change, and 0 if nothing would. With -o markdown it prints a comment for a pull
request.

` + whichGateway,
		Example: "  keygate config diff orders.yaml\n  keygate config diff gateways/ --prune --effect -o markdown",
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.prepare(c, args); err != nil {
				return err
			}
			if err := o.print(o.differences, true); err != nil {
				return err
			}
			if o.anyDifferent() {
				return errDifferent
			}
			return nil
		},
	})
	effectFlag(c.Flags(), &o.effect)
	return c
}

func newConfigApply(a *app) *cobra.Command {
	o := &configRun{app: a}
	c := o.command(&cobra.Command{
		Use:   "apply [--gateway ID] FILE|DIR|-",
		Short: "Apply configuration files; ${env:NAME} is replaced from your environment",
		Long: `Apply configuration files: change gateways and replace their routes, or create them.
${env:NAME} is replaced from your environment. Every file is checked before the first one is
applied. On a terminal, the differences are shown and a question asked, unless --yes is
given; elsewhere they are applied at once.

` + whichGateway,
		Example: "  keygate config apply orders.yaml\n  keygate config apply gateways/ --prune --yes",
		RunE:    o.apply,
	})
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, but change nothing")
	return a.confirmFlag(c)
}

// prepare reads and validates the files, finds their gateways, and asks the server what would
// change. It prints what is wrong with all files. Nothing is changed.
func (o *configRun) prepare(c *cobra.Command, args []string) error {
	name, err := fileArgument(args)
	if err != nil {
		return err
	}
	sets, err := o.readConfigs(name)
	if err != nil {
		return err
	}
	o.set = sets[0]
	switch {
	case o.set.Dir != "" && o.gateway != "":
		return usagef("--gateway cannot be used with a directory: its files name their gateways")
	case o.set.Plans != nil && o.gateway != "":
		return usagef("--gateway cannot be used with a file of plans, which are not of one gateway")
	case o.set.Issuers != nil && o.gateway != "":
		return usagef("--gateway cannot be used with a file of issuers, which are not of one gateway")
	case o.set.Dir == "" && o.prune:
		return usagef("--prune needs a directory: a gateway is deleted if no file of the directory names it")
	}
	if o.api, err = o.connect(); err != nil {
		return err
	}
	cfg := apply.Config{Client: o.api, Prune: o.prune, Effect: o.effect, Busy: o.sayBusy}
	if o.set.Dir == "" && o.set.OfGateways() && (o.gateway != "" || o.set.Files[0].GatewayName() == "") {
		if cfg.Gateway, err = o.gatewayID(o.api, o.gateway); err != nil {
			return err
		}
	}
	o.applier = apply.New(cfg)
	o.differences, err = o.applier.Compare(c.Context(), o.set)
	var wrong *apply.Errors
	var failed *apply.FileError
	switch {
	case errors.As(err, &wrong):
		return o.printErrors(wrong)
	case errors.As(err, &failed):
		return o.about(failed.Name, failed.Err)
	}
	return err
}

// readConfigs reads and validates configuration files. It prints all mistakes of all files.
func (a *app) readConfigs(args ...string) ([]*apply.Set, error) {
	sets, err := apply.Read(apply.Source{File: a.ReadInput, Env: a.Env}, args...)
	var wrong *apply.Errors
	if errors.As(err, &wrong) {
		return nil, a.printErrors(wrong)
	}
	return sets, err
}

// printErrors prints what is wrong with files, and returns the error of the command: the first file
// decides the exit status. An error without a position about the only file is not printed.
func (a *app) printErrors(wrong *apply.Errors) error {
	failed, problems := map[string]bool{}, 0
	var first error
	for _, one := range wrong.List {
		err := one.Err
		var ambiguous *apply.AmbiguousError
		if errors.As(err, &ambiguous) {
			err = ambiguousGateway(ambiguous)
		}
		err = a.mistakes(documentOf(one), err)
		first, failed[one.Name] = cmp.Or(first, err), true
		var printed *mistakesError
		if errors.As(err, &printed) {
			problems += printed.problems
			continue
		}
		lines := messages(err)
		problems += len(lines)
		if wrong.Files > 1 {
			for _, line := range lines {
				a.Say("%s", terminal.Clean(one.Name+": "+line))
			}
		}
	}
	if wrong.Files == 1 {
		return first
	}
	return &mistakesError{fmt.Sprintf("%d of %d files have problems: %d in all", len(failed), wrong.Files, problems), problems, first}
}

// documentOf returns the file of an error.
func documentOf(e *apply.FileError) *documentFile {
	d := newDocumentFile(e.Name, nil)
	d.secrets = e.Secrets
	return d
}

// ambiguousGateway returns the error for a name that several gateways have.
func ambiguousGateway(e *apply.AmbiguousError) error {
	var found []match
	for i := range e.Gateways {
		found = append(found, gatewayMatch(&e.Gateways[i]))
	}
	_, err := only("gateway", e.Name, found, "")
	return err
}

// isList reports whether there is a list of differences, of a directory, of plans or of issuers, and not that of one gateway.
func (o *configRun) isList() bool { return o.set.Dir != "" || !o.set.OfGateways() }

// anyDifferent reports whether applying changes anything.
func (o *configRun) anyDifferent() bool {
	return slices.ContainsFunc(o.differences, func(d *apply.Difference) bool { return d.Action != apply.Keep })
}

// readText returns the content of a file as a string.
func readText(name string) (string, error) {
	content, err := os.ReadFile(name)
	return string(content), err
}

func newConfigSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of configuration files, for editors", Args: noArgs,
		Long: `Print the JSON Schema (draft 2020-12) of configuration files. Editors complete and check
files with it: begin a file with the comment

    # yaml-language-server: $schema=keygate.schema.json`,
		Example: "  keygate config schema > keygate.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := a.Out.Write(apply.Schema())
			return err
		},
	}
}
