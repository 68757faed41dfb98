package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func effectFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "effect", false, "also show what the change would have done to the requests of the last 24 hours")
}

// effectOptions returns the options of a dry run, with WithEffect if the effect is wanted.
func effectOptions(wanted bool, options ...client.Option) []client.Option {
	if wanted {
		options = append(options, client.WithEffect())
	}
	return options
}

// effectText says in a sentence what a change would have done.
func effectText(e *client.Effect) string {
	if e.Requests == 0 {
		return "No request of the last 24 hours used a route that this affects."
	}
	return fmt.Sprintf("%s with %s in the last 24 hours used routes that this affects. %s",
		terminal.NumberOf(e.Requests, "request", "requests"), terminal.NumberOf(e.Keys, "key", "keys"), refusedText(e.Refused, e.RefusedBefore, e.AtMost))
}

// planEffectText says in a sentence what a change of a plan would have done.
func planEffectText(e *client.PlanEffect) string {
	text := "No request of the last 24 hours was one that this plan limits."
	if e.Requests > 0 {
		text = fmt.Sprintf("%s with %s in the last 24 hours had this plan. %s",
			terminal.NumberOf(e.Requests, "request", "requests"), terminal.NumberOf(e.Keys, "key", "keys"), refusedText(e.Refused, e.RefusedBefore, false))
	}
	if e.Unknown > 0 {
		text += fmt.Sprintf(" Of %d more it is not known whether they had it: there were too many keys.", e.Unknown)
	}
	return text
}

// writePlanEffect writes the effect of the change of a plan, if it was asked for: a sentence, and a line for each limit.
func (a *app) writePlanEffect(w io.Writer, e *client.PlanEffect) {
	if e == nil {
		return
	}
	fmt.Fprintln(w, terminal.Yellow.Paint(a.Colours(w) && e.Refused > e.RefusedBefore, "! "+planEffectText(e)))
	for _, l := range e.Limits {
		if l.Change == client.PlanLimitEffectChangeUnchanged && l.Refused == l.RefusedBefore {
			continue
		}
		fmt.Fprintf(w, "!   %s (%s): %s", l.Limit, l.Change, refusedText(l.Refused, l.RefusedBefore, false))
		if l.Unknown > 0 {
			fmt.Fprintf(w, " Of %s it is not known.", terminal.NumberOf(l.Unknown, "request", "requests"))
		}
		fmt.Fprintln(w)
	}
}

// refusedText says how many requests would be refused.
func refusedText(refused, before int64, atMost bool) string {
	text := "None would be refused"
	if refused > 0 {
		text = fmt.Sprintf("%d would be refused", refused)
	}
	if refused > 0 && atMost {
		text = fmt.Sprintf("At most %d would be refused", refused)
	}
	if before > 0 {
		text += fmt.Sprintf("; the limits in force refuse %d", before)
	}
	return text + "."
}

// effectOfRoute returns a route's methods and path, and what changes about it.
func effectOfRoute(r *client.RouteEffect) (route, change string) {
	var changes []string
	for _, c := range r.Changes {
		changes = append(changes, string(c))
	}
	return strings.Join(r.Methods, ",") + " " + terminal.Clean(r.Path), strings.Join(changes, ", ")
}

// upTo marks a number that is an upper bound.
func upTo(n int64, is bool) string {
	if is && n > 0 {
		return fmt.Sprintf("at most %d", n)
	}
	return fmt.Sprint(n)
}

// writeEffect writes the effect of a dry run, if it has one: a sentence, and a line for each route.
func (a *app) writeEffect(w io.Writer, e *client.Effect, verbose bool) {
	if e == nil {
		return
	}
	fmt.Fprintln(w, terminal.Yellow.Paint(a.Colours(w) && e.Refused > e.RefusedBefore, "! "+effectText(e)))
	if len(e.Routes) > maxRoutesShown && !verbose {
		fmt.Fprintln(a.Err, "Add --verbose to list the affected routes.")
		return
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		route, change := effectOfRoute(r)
		fmt.Fprintf(w, "!   %s (%s): %s, %s. %s\n", route, change, terminal.NumberOf(r.Requests, "request", "requests"), terminal.NumberOf(r.Keys, "key", "keys"),
			refusedText(r.Refused, r.RefusedBefore, r.AtMost))
	}
	if e.RoutesLeftOut > 0 {
		fmt.Fprintf(w, "!   and %s\n", terminal.NumberOf(e.RoutesLeftOut, "more route", "more routes"))
	}
}
