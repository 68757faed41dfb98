package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// maxRoutesShown is how many routes a push lists without --verbose.
const maxRoutesShown = 20

// tense says whether changes are printed before or after they are made.
type tense int

const (
	made     tense = iota // they were made
	onlyPlan              // they are not made (dry run)
	proposed              // a question follows whether to make them
)

// printPush prints what a push changed, or in a dry run would change: first the numbers, then
// the routes, unless they are many. Warnings go to standard error.
func (a *app) printPush(p *client.Push, dryRun, verbose bool) error {
	if !a.ForPeople() {
		return a.PrintData(p)
	}
	when := made
	if dryRun {
		when = onlyPlan
	}
	a.writePush(a.Out, p, when, verbose)
	return nil
}

func (a *app) writePush(w io.Writer, p *client.Push, when tense, verbose bool) {
	fmt.Fprintf(w, "%d added, %d removed, %d changed, %d unchanged", len(p.Added), len(p.Removed), len(p.Changed), p.Unchanged)
	switch {
	case p.Revision != nil:
		fmt.Fprintf(w, ": revision %d\n", *p.Revision)
	case when == onlyPlan:
		fmt.Fprintln(w, ": nothing was changed (dry run)")
	case when == proposed:
		fmt.Fprintln(w)
	default:
		fmt.Fprintln(w, ": no new revision")
	}
	if len(p.Added)+len(p.Removed)+len(p.Changed) > maxRoutesShown && !verbose {
		fmt.Fprintln(a.Err, "Add --verbose to list the routes.")
	} else {
		a.writeRoutes(w, p)
	}
	a.writeEffect(w, p.Effect, verbose)
	a.printWarnings(p.Warnings)
}

func (a *app) writeRoutes(w io.Writer, p *client.Push) {
	for _, part := range []struct {
		mark   string
		routes []client.RouteChange
	}{{"+", p.Added}, {"-", p.Removed}, {"~", p.Changed}} {
		for _, r := range part.routes {
			a.writeChange(w, part.mark, strings.Join(r.Methods, ",")+" "+terminal.Clean(r.Path)+changesText(r.Changes))
		}
	}
}

// changesText returns what changes about a route, as ": rate_limit 5/s -> 7/s, auth key -> none".
func changesText(changes *[]client.SettingChange) string {
	if changes == nil {
		return ""
	}
	var parts []string
	for _, c := range *changes {
		before, after := settingText(c.Before), settingText(c.After)
		if c.Field == "cost" {
			before, after = cmp.Or(costChangeText(c.Before), before), cmp.Or(costChangeText(c.After), after)
		}
		parts = append(parts, terminal.Clean(fmt.Sprintf("%s %s -> %s", c.Field, before, after)))
	}
	return ": " + strings.Join(parts, ", ")
}

// writeChange writes a line about something that is added (+), removed (-) or changed (~).
func (a *app) writeChange(w io.Writer, mark, text string) {
	colour := map[string]terminal.Style{"+": terminal.Green, "-": terminal.Red, "~": terminal.Yellow}[mark]
	fmt.Fprintln(w, colour.Paint(a.Colours(w), mark+" "+text))
}
