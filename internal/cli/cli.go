// Package cli implements the command line (contract, section 8): one file for each
// noun; for each command an options struct, a constructor and a run function.
//
// Commands call servers only through package client. serve, demo, account,
// backup, restore, audit-log verify and audit-log export --blocks work on this machine's data
// directory through package server.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// System is the environment that commands run in.
type System struct {
	In  io.Reader
	Out io.Writer // only data
	Err io.Writer // messages
	// Env returns the value of an environment variable and whether it is set.
	Env func(name string) (string, bool)
	// ConfigDir is the user's configuration directory; "" if there is none.
	ConfigDir string
	// Version is the version of the program.
	Version string
}

// OS returns the System of this process.
func OS() *System {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = "" // only login needs one, and reports it
	}
	return &System{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Env: os.LookupEnv, ConfigDir: dir, Version: buildVersion(),
	}
}

// The version that the linker sets in a release (-X .../internal/cli.release=v1.2.3), since the version that
// the Go command stamps into the binary depends on the tags of the clone. "" elsewhere.
//
//nolint:gochecknoglobals // the linker sets nothing else
var (
	release     string // its version
	releaseOf   string // the commit
	releaseDate string // the time of the commit, RFC 3339
)

// buildVersion returns the version of a release, else what the Go command stamped into the binary.
func buildVersion() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// app holds what all commands share: the system and the persistent flags.
type app struct {
	*terminal.Console
	configDir string // System.ConfigDir
	version   string // System.Version
	url       string // --url
	keyFile   string // --api-key-file
	caFile    string // --ca-file
	context   string // --context
	jq        string // --jq

	completing bool // the values of a flag or argument are completed, so nothing is said
}

func newApp(s *System) *app {
	return &app{Console: &terminal.Console{In: s.In, Out: s.Out, Err: s.Err, Env: s.Env}, configDir: s.ConfigDir, version: s.Version}
}

// Run runs the command that args name and returns the exit status of the process
// (contract, section 8). Errors are printed to s.Err.
func Run(ctx context.Context, s *System, args []string) int {
	a := newApp(s)
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errDifferent) && !errors.Is(err, errNotValid) && !errors.Is(err, terminal.ErrCancelled) && !errors.Is(err, errProblems) {
		const name = "keygate:"
		for _, m := range messages(err) {
			folded := terminal.Fold(name+" "+m, a.Width(a.Err), len(name)+1)
			fmt.Fprintln(a.Err, terminal.Red.Paint(a.Colours(a.Err), name)+strings.TrimPrefix(folded, name))
		}
	}
	return exitCode(err)
}

// rootHelp is the text of keygate --help.
const rootHelp = `Keygate puts API keys, rate limits and routes in front of an HTTP service.

  keygate demo     run a server with a sample service, and print commands to try
  keygate serve    run a server
  keygate docs     list the pages of the documentation, or print one

The other commands call a running server. They look for its address and for a key in
this order:

  1. --url and --api-key-file, or KEYGATE_URL and KEYGATE_API_KEY
  2. the context of --context or KEYGATE_CONTEXT, else the current one, which
     "keygate login" creates; --context takes precedence over the environment
  3. http://127.0.0.1:8081 and ./keygate-data/admin.key

A key is sent only to the server that it was given for.

Where a command takes an identifier, it takes a name as well: the name or hostname of a
gateway, the name or prefix of a key, the name of a plan, the external ID of an owner, the
path of a route, the URL or host of an endpoint.
--gateway may be left out if KEYGATE_GATEWAY or the context names a gateway, or if there is
only one.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 differences found,
4 not authorised, 5 not found, 6 conflict or invalid, 7 server unreachable.`

// Root returns the root command, from which manual pages and completions are made.
func Root(s *System) *cobra.Command { return newRoot(newApp(s)) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "keygate",
		Short:         "Keygate puts API keys, rate limits and routes in front of an HTTP service",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // refused by group
		RunE:          group,

		SuggestionsMinimumDistance: maxTypos,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if near := nearestFlag(c, err); near != "" {
			return usagef("%s: did you mean --%s?\nSee %s --help.", err, near, c.CommandPath())
		}
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			err = badValue(bad)
		}
		return usagef("%s\nSee %s --help.", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "`address` of the management API")
	flags.StringVar(&a.context, "context", "", "`name` of the context to use instead of the current one (default: KEYGATE_CONTEXT)")
	flags.StringVar(&a.keyFile, "api-key-file", "", "`file` that holds an account-level key")
	flags.StringVar(&a.caFile, "ca-file", "", "`file` with certificates (PEM) of authorities to trust for https besides the system's (default: KEYGATE_CA_FILE)")
	flags.StringVarP(&a.Format, "output", "o", terminal.FormatTable, "`format` of the output: table, wide (all columns), json, yaml, id or name")
	flags.StringVar(&a.jq, "jq", "", "filter JSON with a jq `expression`; strings are printed as they are")
	flags.StringVar(&a.Colour, "color", terminal.ColourAuto, "`when` to use colours: auto (on terminals), always or never")
	flags.BoolVar(&a.NoHeaders, "no-headers", false, "leave out the column names of tables")
	// cobra would add --version with the short form -v, which people expect to mean verbose.
	root.Flags().Bool("version", false, "print the version")
	root.Version = versionOf(a).String()
	root.SetHelpFunc(printHelp)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", terminal.DefaultWidth)))
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		a.Context = c.Context()
		if c.Name() == cobra.ShellCompRequestCmd || c.Name() == cobra.ShellCompNoDescRequestCmd {
			return nil // the word to complete may be empty
		}
		if err := noneMissing(c, args); err != nil {
			return err
		}
		return a.checkOutput(c)
	}
	root.AddCommand(
		newServe(a), newDemo(a), newDoctor(a), newHealthcheck(a), newMigrate(a), newStore(a), newBackup(a), newRestore(a), newAccount(a), newAccounts(a), newNodes(a),
		newGateways(a), newKeys(a), newOwners(a), newPlans(a), newIssuers(a), newCertificates(a), newUsers(a), newUsage(a), newGrants(a), newUpstreams(a), newTargets(a), newCanary(a), newRoutes(a), newSpec(a), newConfig(a), newImport(a), newRepo(a),
		newWebhooks(a), newDeliveries(a), newEvents(a),
		newAuditLog(a), newTraffic(a), newExplain(a), newTry(a), newLimits(a), newValidation(a),
		newLogin(a), newContext(a), newWhoami(a), newAPI(a), newDocs(a), newVersion(a),
	)
	a.addCompletion(root)
	return root
}

// group is the run function of a command that only has subcommands.
func group(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			return usagef("there is no command %q: did you mean %s?", c.CommandPath()+" "+args[0], near[0])
		}
		return usagef("there is no command %q: see %s --help", c.CommandPath()+" "+args[0], c.CommandPath())
	}
	if !c.HasParent() {
		return c.Help()
	}
	c.SetOut(c.ErrOrStderr())
	_ = c.Help() // a failed write to standard error cannot be reported
	return usagef("no command given: choose one of the above")
}

// newGroup returns a command that only has subcommands. Its name may be given in the
// singular, and list may be given as ls.
func newGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: cobra.ArbitraryArgs, RunE: group, SuggestionsMinimumDistance: maxTypos}
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		c.Aliases = []string{stem + "y"}
	} else if singular, ok := strings.CutSuffix(name, "s"); ok {
		c.Aliases = []string{singular}
	}
	for _, one := range commands {
		if one.Name() == "list" {
			one.Aliases = []string{"ls"}
		}
	}
	c.AddCommand(commands...)
	return c
}

// listsAlone makes a command that has subcommands run its subcommand list if it is given alone, with the flags of list.
func listsAlone(c, list *cobra.Command) *cobra.Command {
	list.Flags().VisitAll(func(f *pflag.Flag) {
		own := *f
		own.Usage = strings.TrimSuffix(f.Usage, alsoArgument) // of an argument, a command would be expected
		c.Flags().AddFlag(&own)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return group(c, args)
		}
		return list.RunE(c, args)
	}
	return c
}

// noArgs refuses arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s does not take the argument %q: see its --help", c.CommandPath(), args[0])
	}
	return nil
}

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%s does not take the argument %q: see its --help", c.CommandPath(), args[n])
		}
		return nil
	}
}

// idOf returns the identifier that a command was given, as a flag or as its first
// argument.
func idOf(flag, value string, args []string) (string, error) {
	switch {
	case value != "" && len(args) > 0 && args[0] != value:
		return "", usagef("--%s is %s but the argument is %s: give only one", flag, value, args[0])
	case value != "":
		return value, nil
	case len(args) > 0 && args[0] != "":
		return args[0], nil
	default:
		hint := ""
		if list, ok := map[string]string{
			"gateway": "gateways", "key-id": "keys", "route-id": "routes", "plan": "plans", "owner": "owners", "issuer-id": "issuers", "certificate-id": "certificates", "webhook-id": "webhooks", "delivery-id": "deliveries", "event-id": "events", "target": "targets",
		}[flag]; ok {
			hint = "; see keygate " + list + " list"
		}
		what := "identifier"
		if flag == "target" {
			what = "URL of a target"
		}
		return "", usagef("no %s given: give it as the argument or with --%s%s", what, flag, hint)
	}
}

// optionalID is idOf for a gateway that may be left out. Then it returns "".
func optionalID(flag, value string, args []string) (string, error) {
	if value == "" && len(args) == 0 {
		return "", nil
	}
	return idOf(flag, value, args)
}

// noneMissing refuses an empty argument, and an empty identifier as a flag. They come from scripts
// in which a variable is not set, and must not select a default.
func noneMissing(c *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return usagef("an argument is empty: see %s --help", c.CommandPath())
	}
	for _, name := range []string{"gateway", "context", "key", "key-id", "route-id", "webhook-id", "issuer-id", "certificate-id", "actor"} {
		f := c.Flags().Lookup(name)
		if f != nil && f.Changed && f.Value.String() == "" && c.CommandPath() != "keygate context set" {
			return usagef("--%s is empty: give it a value or omit it", name)
		}
	}
	return nil
}

// required returns a usage error if the value of a flag is empty.
func required(flag, value string) error {
	if value == "" {
		return usagef("--%s is required", flag)
	}
	return nil
}
