package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/client"
)

// formatMarkdown is the format of -o for a comment on a pull request, which only comparisons have.
const formatMarkdown = "markdown"

// Bounds of a comment.
const (
	maxComment = 65_000 // characters; GitHub takes 65,536
	openRows   = 20     // of a table that is not folded
)

// hasMarkdown reports whether the command with a path can write Markdown.
func hasMarkdown(path string) bool {
	return path == "keygate config diff" || path == "keygate spec push"
}

// comparison is what changes about one gateway.
type comparison struct {
	title    string // names the gateway; in Markdown already
	settings []client.SettingChange
	push     *client.Push // nil for a gateway that is deleted
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
		for _, s := range c.settings {
			changes = append(changes, []string{"~", code("gateway." + s.Field), code(settingText(s.Before)) + " → " + code(settingText(s.After))})
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
				changes = append(changes, []string{part.mark, code(strings.Join(r.Methods, ",") + " " + r.Path), routeChanges(r.Changes)})
			}
		}
		fmt.Fprintf(&b, "Routes: %d added, %d removed, %d changed, %d unchanged.\n\n", len(p.Added), len(p.Removed), len(p.Changed), p.Unchanged)
		markdownTable(&b, []string{"", "What", "Change"}, changes, rows)
		for i, warning := range p.Warnings {
			if i == min(openRows, rows) {
				fmt.Fprintf(&b, "- and %d more warnings\n", len(p.Warnings)-i)
				break
			}
			fmt.Fprintf(&b, "- Warning: %s\n", code(warning))
		}
		if len(p.Warnings) > 0 {
			b.WriteByte('\n')
		}
		if e := p.Effect; e != nil {
			fmt.Fprintf(&b, "**%s**\n\n", effectText(e))
			if e.IncompleteReason != nil {
				fmt.Fprintf(&b, "Incomplete: %s.\n\n", code(*e.IncompleteReason))
			}
			var affected [][]string
			for i := range e.Routes {
				r := &e.Routes[i]
				route, change := effectOfRoute(r)
				affected = append(affected, []string{
					code(route), change, fmt.Sprint(r.Requests), fmt.Sprint(r.Keys), upTo(r.Refused, r.AtMost), fmt.Sprint(r.RefusedBefore),
				})
			}
			markdownTable(&b, []string{"Route", "Change", "Requests", "Keys", "Refused", "Refused now"}, affected, rows)
			if e.RoutesLeftOut > 0 {
				fmt.Fprintf(&b, "%s more are affected.\n\n", numberOf(e.RoutesLeftOut, "route", "routes"))
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
		parts = append(parts, fmt.Sprintf("%s %s → %s", c.Field, code(settingText(c.Before)), code(settingText(c.After))))
	}
	return strings.Join(parts, ", ")
}

// markdownTable writes a table of at most most rows, folded if it is long.
func markdownTable(b *strings.Builder, head []string, rows [][]string, most int) {
	if len(rows) == 0 {
		return
	}
	shown := rows[:min(len(rows), most)]
	folded := len(rows) > openRows
	if folded {
		fmt.Fprintf(b, "<details><summary>%d lines</summary>\n\n", len(rows))
	}
	if len(shown) > 0 {
		fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	}
	for _, r := range shown {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r, " | "))
	}
	if left := len(rows) - len(shown); left > 0 {
		fmt.Fprintf(b, "\n%d more lines are left out: keygate config diff shows them all.\n", left)
	}
	b.WriteByte('\n')
	if folded {
		b.WriteString("</details>\n\n")
	}
}

// code returns a text as code in a cell of a table: as it is, on one line.
func code(text string) string {
	text = strings.ReplaceAll(clean(text), "|", `\|`)
	if text == "" {
		text = " "
	}
	longest, run := 0, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}
