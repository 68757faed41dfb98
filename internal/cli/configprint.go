package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// settingsOf returns the settings that a push changes.
func settingsOf(d *client.Push) []client.SettingChange {
	if d.Gateway == nil {
		return []client.SettingChange{}
	}
	return *d.Gateway
}

// settingText returns a setting on one line.
func settingText(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case string:
		return v
	case map[string]any:
		if text := limitText(v); text != "" {
			return text
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// limitText returns a rate limit on one line; "" if the value is not one.
func limitText(limit map[string]any) string {
	var parts []string
	for _, part := range []struct{ field, word string }{{"sustained", ""}, {"burst", "burst "}, {"daily", "daily "}, {"per", "per "}} {
		if text, isText := limit[part.field].(string); isText {
			parts = append(parts, part.word+text)
		}
	}
	if len(parts) != len(limit) { // it has something else
		return ""
	}
	return strings.Join(parts, ", ")
}

// print prints differences for people, or for programs: an object for one file, an array for a
// directory.
func (o *configRun) print(list []*apply.Difference, dryRun bool) error {
	switch {
	case o.Format == formatMarkdown:
		return o.printMarkdown(list)
	case o.ForPeople():
		when := made
		switch {
		case dryRun && o.set.Dir != "":
			when = proposed // the totals say that nothing was changed
		case dryRun:
			when = onlyPlan
		}
		for _, d := range list {
			o.write(o.Out, d, when)
		}
		if o.set.Dir != "" {
			fmt.Fprintln(o.Out, o.totals(list, when))
		}
		return nil
	case o.set.Dir == "" && len(list) > 0:
		return o.PrintData(list[0])
	}
	return o.PrintData(list)
}

// printMarkdown prints differences as a comment. Gateways that do not change are left out.
func (o *configRun) printMarkdown(list []*apply.Difference) error {
	var all []comparison
	for _, d := range list {
		if d.Action == apply.Keep {
			continue
		}
		c := comparison{title: "Gateway " + terminal.Code(d.Name), settings: d.Gateway, push: d.Push}
		switch d.Action {
		case apply.Create:
			c.title += ": to be created"
		case apply.Delete:
			c.title, c.push = c.title+": to be deleted", nil
		}
		if d.File != "" {
			c.title += " (" + terminal.Code(d.File) + ")"
		}
		all = append(all, c)
	}
	title := "Gateways that would change"
	if len(all) == 0 {
		title = "No gateway would change"
	}
	return writeMarkdown(o.Out, title, all)
}

// write writes what happens to a gateway. In the result for a directory, gateways that do not change are left out.
func (o *configRun) write(w io.Writer, d *apply.Difference, when tense) {
	if o.set.Dir != "" && d.Action == apply.Keep && !o.verbose {
		return
	}
	head := d.Label()
	if o.set.Dir != "" && d.File != "" {
		head += ", " + d.File
	}
	switch mark := map[apply.Action]string{apply.Create: "+", apply.Delete: "-", apply.Update: "~", apply.Keep: "="}[d.Action]; {
	case d.Action == apply.Create && d.GatewayID == "":
		o.writeChange(w, mark, terminal.Clean(head)+", which does not exist yet")
	case o.set.Dir != "" || d.Action == apply.Create:
		o.writeChange(w, mark, terminal.Clean(head))
	}
	if d.Action == apply.Delete {
		return
	}
	o.writeSettings(w, d.Gateway)
	o.writePush(w, d.Push, when, o.verbose)
}

// writeSettings writes a line for each setting that changes.
func (a *app) writeSettings(w io.Writer, changes []client.SettingChange) {
	for _, s := range changes {
		a.writeChange(w, "~", fmt.Sprintf("gateway.%s: %s -> %s", s.Field, terminal.Clean(settingText(s.Before)), terminal.Clean(settingText(s.After))))
	}
}

// totals returns a sentence with the numbers of gateways that differ.
func (o *configRun) totals(list []*apply.Difference, when tense) string {
	n := map[apply.Action]int{}
	for _, d := range list {
		n[d.Action]++
	}
	verbs := [3]string{"created", "changed", "deleted"}
	if when != made {
		verbs = [3]string{"to create", "to change", "to delete"}
	}
	return fmt.Sprintf("Gateways: %d %s, %d %s, %d %s, %d without differences.",
		n[apply.Create], verbs[0], n[apply.Update], verbs[1], n[apply.Delete], verbs[2], n[apply.Keep])
}
