package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// difference is the output of config diff and config apply for one gateway.
type difference struct {
	File      string `json:"file,omitempty"` // "" for a gateway that is deleted
	Action    action `json:"action"`
	GatewayID string `json:"gateway_id,omitempty"` // "" for a gateway that does not exist yet
	Name      string `json:"name"`
	*client.Push
	Gateway []client.SettingChange `json:"gateway"` // never nil, unlike that of Push
}

// settingsOf returns the settings that a push changes.
func settingsOf(p *client.Push) []client.SettingChange {
	if p.Gateway == nil {
		return []client.SettingChange{}
	}
	return *p.Gateway
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

// differs reports whether anything of an existing gateway changes.
func (d *difference) differs() bool {
	return len(d.Gateway)+len(d.Added)+len(d.Removed)+len(d.Changed) > 0
}

// label names the gateway in messages.
func (d *difference) label() string {
	if d.GatewayID == "" {
		return "gateway " + d.Name
	}
	return "gateway " + withID(d.Name, d.GatewayID)
}

// hide replaces the values of environment variables in what is printed.
func (p *planned) hide() {
	hide := p.file.secrets.hide
	if len(p.file.secrets) == 0 {
		return
	}
	p.Name = hide(p.Name)
	hideChanges(p.Gateway, hide)
	for _, routes := range [][]client.RouteChange{p.Added, p.Removed, p.Changed} {
		for i := range routes {
			if routes[i].Path = hide(routes[i].Path); routes[i].Changes != nil {
				hideChanges(*routes[i].Changes, hide)
			}
		}
	}
	for i := range p.Warnings {
		p.Warnings[i] = hide(p.Warnings[i])
	}
}

// hideChanges applies hide to the values of changes.
func hideChanges(changes []client.SettingChange, hide func(string) string) {
	for i := range changes {
		changes[i].Before, changes[i].After = hideIn(changes[i].Before, hide), hideIn(changes[i].After, hide)
	}
}

// hideIn returns a JSON value with hide applied to all of its strings.
func hideIn(value any, hide func(string) string) any {
	switch v := value.(type) {
	case string:
		return hide(v)
	case []any:
		for i := range v {
			v[i] = hideIn(v[i], hide)
		}
	case map[string]any:
		for name := range v {
			v[name] = hideIn(v[name], hide)
		}
	}
	return value
}

// print prints the plan for people, or for programs: an object for one file, an array for a
// directory.
func (o *configRun) print(plan []*planned, dryRun bool) error {
	switch {
	case o.Format == formatMarkdown:
		return o.printMarkdown(plan)
	case o.ForPeople():
		when := made
		switch {
		case dryRun && o.set.dir != "":
			when = proposed // the totals say that nothing was changed
		case dryRun:
			when = onlyPlan
		}
		for _, p := range plan {
			o.write(o.Out, p, when)
		}
		if o.set.dir != "" {
			fmt.Fprintln(o.Out, o.totals(plan, when))
		}
		return nil
	case o.set.dir == "" && len(plan) > 0:
		return o.PrintData(plan[0].difference)
	}
	all := make([]difference, len(plan))
	for i, p := range plan {
		all[i] = p.difference
	}
	return o.PrintData(all)
}

// printMarkdown prints the plan as a comment. Gateways that do not change are left out.
func (o *configRun) printMarkdown(plan []*planned) error {
	var all []comparison
	for _, p := range plan {
		if p.Action == keepGateway {
			continue
		}
		c := comparison{title: "Gateway " + terminal.Code(p.Name), settings: p.Gateway, push: p.Push}
		switch p.Action {
		case createGateway:
			c.title += ": to be created"
		case deleteGateway:
			c.title, c.push = c.title+": to be deleted", nil
		}
		if p.File != "" {
			c.title += " (" + terminal.Code(p.File) + ")"
		}
		all = append(all, c)
	}
	title := "Gateways that would change"
	if len(all) == 0 {
		title = "No gateway would change"
	}
	return writeMarkdown(o.Out, title, all)
}

// write writes what happens to a gateway. Of a directory, gateways that do not change are left out.
func (o *configRun) write(w io.Writer, p *planned, when tense) {
	if o.set.dir != "" && p.Action == keepGateway && !o.verbose {
		return
	}
	head := p.label()
	if o.set.dir != "" && p.File != "" {
		head += ", " + p.File
	}
	switch mark := map[action]string{createGateway: "+", deleteGateway: "-", updateGateway: "~", keepGateway: "="}[p.Action]; {
	case p.Action == createGateway && p.GatewayID == "":
		o.writeChange(w, mark, terminal.Clean(head)+", which does not exist yet")
	case o.set.dir != "" || p.Action == createGateway:
		o.writeChange(w, mark, terminal.Clean(head))
	}
	if p.Action == deleteGateway {
		return
	}
	o.writeSettings(w, p.Gateway)
	o.writePush(w, p.Push, when, o.verbose)
}

// writeSettings writes a line for each setting that changes.
func (a *app) writeSettings(w io.Writer, changes []client.SettingChange) {
	for _, s := range changes {
		a.writeChange(w, "~", fmt.Sprintf("gateway.%s: %s -> %s", s.Field, terminal.Clean(settingText(s.Before)), terminal.Clean(settingText(s.After))))
	}
}

// totals returns a sentence with the numbers of gateways of a plan.
func (o *configRun) totals(plan []*planned, when tense) string {
	n := map[action]int{}
	for _, p := range plan {
		n[p.Action]++
	}
	verbs := [3]string{"created", "changed", "deleted"}
	if when != made {
		verbs = [3]string{"to create", "to change", "to delete"}
	}
	return fmt.Sprintf("Gateways: %d %s, %d %s, %d %s, %d without differences.",
		n[createGateway], verbs[0], n[updateGateway], verbs[1], n[deleteGateway], verbs[2], n[keepGateway])
}
