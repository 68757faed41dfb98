// Package cli is the command line: one file a noun, each command an options
// struct, a constructor and a run function (contract, section 8). It speaks to
// servers through package client alone; only serve, demo and account reach into
// this machine's own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// System is what a command sees of the machine.
type System struct {
	In  io.Reader
	Out io.Writer // data alone
	Err io.Writer // messages
	// Env looks an environment variable up.
	Env func(name string) (string, bool)
	// ConfigDir is the user's directory for settings; "" if there is none.
	ConfigDir string
	// Version is the program's.
	Version string
}

// OS returns the System of this process.
func OS() *System {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = "" // login says so when it needs one
	}
	return &System{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Env: os.LookupEnv, ConfigDir: dir, Version: buildVersion(),
	}
}

// buildVersion returns the version that the Go command stamped into the binary.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// app is what every command is made with.
type app struct {
	*System
	url     string // --url
	keyFile string // --api-key-file
	output  string // -o
}

// Run runs one command and returns the process's exit status (contract,
// section 8).
func Run(ctx context.Context, s *System, args []string) int {
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errDifferent) {
		fmt.Fprintln(s.Err, "keygate: "+message(err))
	}
	return exitCode(err)
}

func newRoot(s *System) *cobra.Command {
	a := &app{System: s}
	root := &cobra.Command{
		Use:   "keygate",
		Short: "Keygate puts API keys, rate limits and routes in front of an HTTP service",
		Long: `Keygate puts API keys, rate limits and routes in front of an HTTP service.

  keygate demo     try it: a server, a sample service and commands to paste
  keygate serve    run a server

The other commands call a running server. They find it, and the key to call it
with, in this order:

  1. --url and --api-key-file, KEYGATE_URL and KEYGATE_API_KEY
  2. the context that "keygate login" made
  3. http://127.0.0.1:8081 and ./keygate-data/admin.key

A key is only ever sent to the server that it was given for.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 differences found,
4 not authorised, 5 not found, 6 conflict or invalid, 7 server unreachable.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // group refuses them
		RunE:          group,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s\nSee %s --help.", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "`address` of the management API")
	flags.StringVar(&a.keyFile, "api-key-file", "", "`file` that holds the account-level key to call with")
	flags.StringVarP(&a.output, "output", "o", "table", "`format` of the output: table, json or yaml")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.checkOutput() }
	root.AddCommand(
		newServe(a), newDemo(a), newAccount(a),
		newGateways(a), newKeys(a), newRoutes(a), newSpec(a), newConfig(a),
		newWebhooks(a), newDeliveries(a), newEvents(a),
		newAuditLog(a), newTraffic(a), newExplain(a), newLimits(a),
		newLogin(a), newContext(a), newAPI(a), newVersion(a),
	)
	return root
}

// group is the run function of a command that only holds others.
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
	_ = c.Help() // to a person
	return usagef("which command? See above.")
}

// newGroup returns a command that only holds others.
func newGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: cobra.ArbitraryArgs, RunE: group, SuggestionsMinimumDistance: 2}
	c.AddCommand(commands...)
	return c
}

// noArgs refuses arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q: see its --help", c.CommandPath(), args[0])
	}
	return nil
}

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%s takes no argument %q: see its --help", c.CommandPath(), args[n])
		}
		return nil
	}
}

// idOf returns the identifier that a command was given as its flag or as its
// first argument.
func idOf(flag, value string, args []string) (string, error) {
	switch {
	case value != "" && len(args) > 0 && args[0] != value:
		return "", usagef("--%s says %s and the argument %s: give one", flag, value, args[0])
	case value != "":
		return value, nil
	case len(args) > 0 && args[0] != "":
		return args[0], nil
	default:
		return "", usagef("which one? Give its identifier as the argument, or with --%s.", flag)
	}
}

// required refuses an absent flag.
func required(flag, value string) error {
	if value == "" {
		return usagef("--%s is missing", flag)
	}
	return nil
}

// isTerminal reports whether stream is a terminal, and returns its descriptor.
func isTerminal(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}
