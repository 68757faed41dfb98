package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
)

type specRevisions struct {
	*app
	gateway string
	options client.ListOptions
	limit   int
}

func newSpecRevisions(a *app) *cobra.Command {
	o := &specRevisions{app: a}
	c := &cobra.Command{
		Use: "revisions --gateway ID [NUMBER]", Aliases: []string{"revision"}, Short: "List the revisions of a gateway, newest first, or show one", Args: atMost(1), RunE: o.run,
		Example: "  keygate spec revisions --gateway gw_01j…\n  keygate spec revisions --gateway gw_01j… 7\n  keygate spec revisions diff --gateway gw_01j… 3 7",
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	limitFlag(c.Flags(), &o.limit)
	c.AddCommand(newRevisionGet(a), newRevisionDiff(a))
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
	return terminal.PrintList(o.Console, o.limit, api.Revisions(c.Context(), o.gateway, o.options), terminal.Listing[client.Revision]{
		Columns: []terminal.Column{
			{Name: "NUMBER"}, {Name: "SOURCE", Rank: 1}, {Name: "KIND"}, {Name: "AUTHOR", Rank: 2, Flex: true}, {Name: "COMMIT", Rank: 3}, {Name: "CREATED"},
			{Name: "ADDED"}, {Name: "REMOVED"}, {Name: "CHANGED"},
		},
		Row: func(r *client.Revision) []string {
			return []string{
				strconv.FormatInt(r.Number, 10), string(r.Source), string(r.Kind), r.Author, shortCommit(r.Commit), o.When(&r.CreatedAt),
				fmt.Sprint(r.Added), fmt.Sprint(r.Removed), fmt.Sprint(r.Changed),
			}
		},
		Empty: "No revisions. Push an OpenAPI document: keygate spec push FILE",
	})
}

func (o *specRevisions) one(c *cobra.Command, arg string) error {
	n, err := revisionNumber(arg)
	if err != nil {
		return err
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	r, err := api.Revision(c.Context(), o.gateway, n)
	if err != nil {
		return err
	}
	return o.PrintRecord(r, func() []terminal.Field {
		return []terminal.Field{
			{"NUMBER", strconv.FormatInt(r.Number, 10)}, {"REVISION ID", r.RevisionID}, {"SOURCE", string(r.Source)}, {"KIND", string(r.Kind)},
			{"AUTHOR", r.Author}, {"COMMIT", str(r.Commit)}, {"CREATED", terminal.Moment(&r.CreatedAt)},
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

// shortCommit returns the first digits of a commit, which identify it in its repository, or "".
func shortCommit(commit *string) string {
	c := str(commit)
	return c[:min(len(c), 12)]
}

func newRevisionGet(a *app) *cobra.Command {
	gateway := ""
	c := &cobra.Command{
		Use:     "get --gateway ID NUMBER",
		Short:   "Print the document of a revision: an OpenAPI document or a configuration file",
		Example: "  keygate spec revisions get --gateway gw_01j… 3 > openapi.yaml",
		Args:    atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no revision given: give its number")
			}
			n, err := revisionNumber(args[0])
			if err != nil {
				return err
			}
			api, err := a.connectFor(&gateway)
			if err != nil {
				return err
			}
			content, err := inTurn(c.Context(), a, func() ([]byte, error) { return api.RevisionContent(c.Context(), gateway, n) })
			if err != nil {
				return err
			}
			_, err = a.Out.Write(content)
			return err
		},
	}
	c.Flags().StringVar(&gateway, "gateway", "", defaultGatewayUsage)
	return c
}

type revisionDiff struct {
	*app
	gateway string
	verbose bool
}

func newRevisionDiff(a *app) *cobra.Command {
	o := &revisionDiff{app: a}
	c := &cobra.Command{
		Use:     "diff --gateway ID FROM [TO]",
		Short:   "Compare two revisions: their routes and, of configuration files, the settings; by default with the last one; the exit status is 3 if they differ",
		Example: "  keygate spec revisions diff --gateway gw_01j… 3 7\n  keygate spec revisions diff --gateway gw_01j… 3    # with the last one",
		Args:    atMost(2),
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	verboseFlag(c.Flags(), &o.verbose)
	return c
}

func (o *revisionDiff) run(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no revision given: give the number of one to compare with the last one, or of two")
	}
	numbers := make([]int64, len(args))
	for i, arg := range args {
		n, err := revisionNumber(arg)
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	if len(numbers) == 1 {
		g, err := api.Gateway(c.Context(), o.gateway)
		if err != nil {
			return err
		}
		if g.Revision == nil {
			return errNoRevisions
		}
		numbers = append(numbers, *g.Revision)
	}
	p, err := inTurn(c.Context(), o.app, func() (*client.Push, error) {
		return api.DiffRevisions(c.Context(), o.gateway, numbers[0], numbers[1])
	})
	if err != nil {
		return err
	}
	if o.ForPeople() {
		fmt.Fprintf(o.Out, "Revision %d to %d: ", numbers[0], numbers[1])
		o.writePush(o.Out, p, proposed, o.verbose)
		o.writeSettings(o.Out, "gateway", settingsOf(p))
	} else if err := o.PrintData(p); err != nil {
		return err
	}
	if changesSomething(p) {
		return errDifferent
	}
	return nil
}

// changesSomething reports whether a push or rollback changes a route or a setting.
func changesSomething(p *client.Push) bool {
	return len(p.Added)+len(p.Removed)+len(p.Changed)+len(settingsOf(p)) > 0
}

// errNoRevisions is the error for a gateway that nothing was pushed to.
var errNoRevisions = fault.New(fault.NotFound, "the gateway has no revisions: nothing was pushed to it yet")

type specRollback struct {
	*app
	gateway  string
	previous bool
	dryRun   bool
	effect   bool
	verbose  bool
}

func newSpecRollback(a *app) *cobra.Command {
	o := &specRollback{app: a}
	c := &cobra.Command{
		Use:     "rollback --gateway ID NUMBER|--previous",
		Short:   "Restore the routes of an earlier revision, as a new revision",
		Example: "  keygate spec rollback --gateway gw_01j… --previous\n  keygate spec rollback --gateway gw_01j… 3 --dry-run",
		Args:    atMost(1),
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	c.Flags().BoolVar(&o.previous, "previous", false, "roll back to the revision before the last one")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, but change nothing")
	effectFlag(c.Flags(), &o.effect)
	verboseFlag(c.Flags(), &o.verbose)
	return a.confirmFlag(c)
}

func (o *specRollback) run(c *cobra.Command, args []string) error {
	number, err := o.number(args)
	if err != nil {
		return err
	}
	if o.effect && !o.dryRun {
		return usagef("--effect is for a dry run: give --dry-run too")
	}
	api, err := o.connectFor(&o.gateway)
	if err != nil {
		return err
	}
	g, etag, err := api.GatewayWithETag(c.Context(), o.gateway)
	if err != nil {
		return err
	}
	if o.previous {
		if number, err = previousRevision(g); err != nil {
			return err
		}
	}
	rollback := func(dryRun bool) (*client.Push, error) {
		return inTurn(c.Context(), o.app, func() (*client.Push, error) {
			return api.Rollback(c.Context(), o.gateway, number, dryRun, effectOptions(o.effect, client.IfMatch(etag))...)
		})
	}
	if o.dryRun {
		return o.done(rollback(true))
	}
	asked := o.Asks()
	if asked {
		if err := o.ask(c, api, g, number, rollback); err != nil {
			return err
		}
	}
	p, err := rollback(false)
	if err == nil && asked && o.ForPeople() && o.Width(o.Out) > 0 { // the changes are on the screen already
		if p.Revision == nil {
			o.Say("Revision %d was in force already.", number)
		} else {
			o.Say("Rolled back to revision %d, as revision %d.", number, *p.Revision)
		}
		return nil
	}
	return o.done(p, err)
}

// number returns the number that the arguments give, or 0 with --previous.
func (o *specRollback) number(args []string) (int64, error) {
	switch {
	case o.previous && len(args) > 0:
		return 0, usagef("give a revision or --previous, not both")
	case o.previous:
		return 0, nil
	case len(args) == 0:
		return 0, usagef("no revision given: give its number, or --previous for the one before the last; keygate spec revisions lists them")
	default:
		return revisionNumber(args[0])
	}
}

// previousRevision returns the number of the revision before the last one.
func previousRevision(g *client.Gateway) (int64, error) {
	switch {
	case g.Revision == nil:
		return 0, errNoRevisions
	case *g.Revision == 1:
		return 0, fault.New(fault.NotFound, "the gateway has only one revision, and none before it")
	default:
		return *g.Revision - 1, nil
	}
}

// ask shows what a rollback changes and asks whether to do it.
func (o *specRollback) ask(c *cobra.Command, api *client.Client, g *client.Gateway, number int64, rollback func(dryRun bool) (*client.Push, error)) error {
	r, err := api.Revision(c.Context(), o.gateway, number)
	if err != nil {
		return err
	}
	p, err := rollback(true)
	if err != nil {
		return changedMeanwhile(err)
	}
	from := ""
	if g.Revision != nil {
		from = fmt.Sprintf(" from revision %d", *g.Revision)
	}
	o.Say("This rolls back %s%s to %s:", terminal.Clean(gatewayLabel(g)), from, terminal.Clean(o.describe(r)))
	o.writePush(o.Err, p, proposed, o.verbose)
	o.writeSettings(o.Err, "gateway", settingsOf(p))
	return o.Answered("Roll back? [y/N] ", terminal.IsYes)
}

// describe says which revision r is.
func (o *specRollback) describe(r *client.Revision) string {
	text := fmt.Sprintf("revision %d, %s (%s)", r.Number, terminal.Moment(&r.CreatedAt), terminal.Relative(time.Until(r.CreatedAt)))
	if r.Author != "" {
		text += " by " + r.Author
	}
	if r.Commit != nil {
		text += ", commit " + shortCommit(r.Commit)
	}
	return text
}

// done prints the result of a rollback or of its dry run.
func (o *specRollback) done(p *client.Push, err error) error {
	if err != nil {
		return changedMeanwhile(err)
	}
	if err := o.printPush(p, o.dryRun, o.verbose); err != nil || !o.ForPeople() {
		return err
	}
	o.writeSettings(o.Out, "gateway", settingsOf(p))
	return nil
}

// changedMeanwhile explains that a gateway has changed since it was read.
func changedMeanwhile(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return fault.New(fault.PreconditionFailed, "the gateway was changed meanwhile, and nothing was rolled back: look at it and run the command again")
	}
	return err
}
