package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// formatMarkdown is the format of -o for a comment on a pull request, which only comparisons have.
const formatMarkdown = "markdown"

// Bounds of a comment.
const (
	maxComment = 65_000 // characters; GitHub takes 65,536
)

// hasMarkdown reports whether the command with a path can write Markdown.
func hasMarkdown(path string) bool {
	return path == "keygate config diff" || path == "keygate spec push"
}

// comparison is what changes about one gateway or plan.
type comparison struct {
	title    string // names the gateway or plan; in Markdown already
	plan     bool   // whether it is a plan, which has no routes
	settings []client.SettingChange
	push     *client.Push // nil for a gateway that is deleted

	planEffect *client.PlanEffect // nil if nothing asked for it
}

// writeMarkdown writes comparisons as a comment. Texts that others choose, such as paths, are code, in which
// nothing is a link, a mention or HTML. Tables are shortened until the comment is short enough.
func writeMarkdown(w io.Writer, title string, all []comparison) error {
	for rows := 1000; ; rows /= 2 {
		text := markdown(title, all, rows)
		if utf8.RuneCountInString(text) <= maxComment {
			_, err := io.WriteString(w, text)
			return err
		}
		if rows == 0 { // the gateways alone are too many
			_, err := io.WriteString(w, markdown(title, nil, 0)+fmt.Sprintf("%d gateways would change: too many to list here.\n", len(all)))
			return err
		}
	}
}

// markdown renders comparisons as tables of at most rows lines.
func markdown(title string, all []comparison, rows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", title)
	for _, c := range all {
		if c.title != "" {
			fmt.Fprintf(&b, "### %s\n\n", c.title)
		}
		var changes [][]string
		of := "gateway."
		if c.plan {
			of = "plan."
		}
		for _, s := range c.settings {
			changes = append(changes, []string{"~", terminal.Code(of + s.Field), terminal.Code(settingText(s.Before)) + " → " + terminal.Code(settingText(s.After))})
		}
		if c.push == nil {
			continue
		}
		p := c.push
		for _, part := range []struct {
			mark   string
			routes []client.RouteChange
		}{{"+", p.Added}, {"−", p.Removed}, {"~", p.Changed}} {
			for _, r := range part.routes {
				changes = append(changes, []string{part.mark, terminal.Code(strings.Join(r.Methods, ",") + " " + r.Path), routeChanges(r.Changes)})
			}
		}
		if !c.plan {
			fmt.Fprintf(&b, "Routes: %d added, %d removed, %d changed, %d unchanged.\n\n", len(p.Added), len(p.Removed), len(p.Changed), p.Unchanged)
		}
		terminal.MarkdownTable(&b, []string{"", "What", "Change"}, changes, rows)
		for i, warning := range p.Warnings {
			if i == min(terminal.OpenRows, rows) {
				fmt.Fprintf(&b, "- and %d more warnings\n", len(p.Warnings)-i)
				break
			}
			fmt.Fprintf(&b, "- Warning: %s\n", terminal.Code(warning))
		}
		if len(p.Warnings) > 0 {
			b.WriteByte('\n')
		}
		if e := c.planEffect; e != nil {
			fmt.Fprintf(&b, "**%s**\n\n", planEffectText(e))
			if e.IncompleteReason != nil {
				fmt.Fprintf(&b, "Incomplete: %s.\n\n", terminal.Code(*e.IncompleteReason))
			}
			var limits [][]string
			for _, l := range e.Limits {
				limits = append(limits, []string{terminal.Code(l.Limit), string(l.Change), fmt.Sprint(l.Refused), fmt.Sprint(l.RefusedBefore), fmt.Sprint(l.Unknown)})
			}
			terminal.MarkdownTable(&b, []string{"Limit", "Change", "Refused", "Refused now", "Unknown"}, limits, rows)
		}
		if e := p.Effect; e != nil {
			fmt.Fprintf(&b, "**%s**\n\n", effectText(e))
			if e.IncompleteReason != nil {
				fmt.Fprintf(&b, "Incomplete: %s.\n\n", terminal.Code(*e.IncompleteReason))
			}
			var affected [][]string
			for i := range e.Routes {
				r := &e.Routes[i]
				route, change := effectOfRoute(r)
				affected = append(affected, []string{
					terminal.Code(route), change, fmt.Sprint(r.Requests), fmt.Sprint(r.Keys), upTo(r.Refused, r.AtMost), fmt.Sprint(r.RefusedBefore),
				})
			}
			terminal.MarkdownTable(&b, []string{"Route", "Change", "Requests", "Keys", "Refused", "Refused now"}, affected, rows)
			if e.RoutesLeftOut > 0 {
				fmt.Fprintf(&b, "%s more are affected.\n\n", terminal.NumberOf(e.RoutesLeftOut, "route", "routes"))
			}
		}
	}
	return b.String()
}

// routeChanges returns what changes about a route.
func routeChanges(changes *[]client.SettingChange) string {
	if changes == nil {
		return ""
	}
	var parts []string
	for _, c := range *changes {
		parts = append(parts, fmt.Sprintf("%s %s → %s", c.Field, terminal.Code(settingText(c.Before)), terminal.Code(settingText(c.After))))
	}
	return strings.Join(parts, ", ")
}
