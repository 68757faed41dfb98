package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
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
	case []any:
		if text := splitChangeText(v); text != "" && len(v) > 0 {
			return text
		}
	case map[string]any:
		if most, isCount := wholeText(v["max"]); isCount { // of requests in flight
			if per, isText := v["per"].(string); isText {
				most += "/" + per
			}
			return most
		}
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

// wholeText returns a whole number, whatever its type, as text.
func wholeText(value any) (text string, is bool) {
	switch n := value.(type) {
	case int64:
		return strconv.FormatInt(n, 10), true
	case float64:
		return strconv.FormatFloat(n, 'f', -1, 64), true
	}
	return "", false
}

// limitText returns a rate limit or a limit of a plan on one line; "" if the value is not one.
func limitText(limit map[string]any) string {
	var parts []string
	for _, part := range []struct{ field, word string }{
		{"sustained", ""}, {"burst", "burst "}, {"daily", "daily "}, {"quota", "quota "}, {"meter", "of "}, {"overage", "overage "}, {"per", "per "}, {"gateway", "gateway "},
	} {
		if text, isText := limit[part.field].(string); isText {
			parts = append(parts, part.word+text)
		}
	}
	if most, isCount := wholeText(limit["concurrency"]); isCount {
		parts = append(parts, "concurrency "+most)
	}
	for _, part := range []struct{ field, word string }{{"warn_at", "warn at "}, {"routes", "routes "}} {
		if list, isList := limit[part.field].([]any); isList {
			parts = append(parts, part.word+cmp.Or(strings.Trim(fmt.Sprint(list), "[]"), "none"))
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
		case dryRun && o.isList():
			when = proposed // the totals say that nothing was changed
		case dryRun:
			when = onlyPlan
		}
		for _, d := range list {
			o.write(o.Out, d, when)
		}
		if o.isList() {
			fmt.Fprintln(o.Out, o.totals(list, when))
		}
		return nil
	case !o.isList() && len(list) > 0:
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
		if d.Kind == apply.Plan {
			c.title, c.settings, c.plan, c.planEffect = "Plan "+terminal.Code(d.Name), d.Plan, true, d.PlanEffect
		}
		if d.Kind == apply.Issuer {
			c.title, c.settings, c.plan = "Issuer "+terminal.Code(d.Name), d.Issuer, true
		}
		switch d.Action {
		case apply.Create:
			c.title += ": to be created"
		case apply.Update:
			if d.Late() {
				c.title += ": limits of new gateways"
			}
		case apply.Delete:
			c.title, c.push = c.title+": to be deleted", nil
		}
		if d.File != "" {
			c.title += " (" + terminal.Code(d.File) + ")"
		}
		all = append(all, c)
	}
	one, several := "gateway", "Gateways"
	if o.set.Plans != nil {
		one, several = one+" or plan", several+" and plans"
	}
	if o.set.Issuers != nil {
		one, several = one+" or issuer", several+" and issuers"
	}
	title := several + " that would change"
	if len(all) == 0 {
		title = "No " + one + " would change"
	}
	return writeMarkdown(o.Out, title, all)
}

// write writes what happens to a gateway. In the result for a directory, gateways that do not change are left out.
func (o *configRun) write(w io.Writer, d *apply.Difference, when tense) {
	if o.isList() && d.Action == apply.Keep && !o.verbose {
		return
	}
	head := d.Label()
	if d.Late() {
		head += ", limits of new gateways"
	}
	if o.isList() && d.File != "" {
		head += ", " + d.File
	}
	switch mark := map[apply.Action]string{apply.Create: "+", apply.Delete: "-", apply.Update: "~", apply.Keep: "="}[d.Action]; {
	case d.Action == apply.Create && d.GatewayID+d.PlanID+d.IssuerID == "":
		o.writeChange(w, mark, terminal.Clean(head)+", which does not exist yet")
	case o.isList() || d.Action == apply.Create:
		o.writeChange(w, mark, terminal.Clean(head))
	}
	if d.Action == apply.Delete {
		return
	}
	if d.Kind == apply.Plan {
		o.writeSettings(w, "plan", d.Plan)
		o.writePlanEffect(w, d.PlanEffect)
		o.printWarnings(d.Warnings)
		return
	}
	if d.Kind == apply.Issuer {
		o.writeSettings(w, "issuer", d.Issuer)
		o.printWarnings(d.Warnings)
		return
	}
	o.writeSettings(w, "gateway", d.Gateway)
	o.writePush(w, d.Push, when, o.verbose)
}

// writeSettings writes a line for each setting that changes, of a gateway or a plan.
func (a *app) writeSettings(w io.Writer, of string, changes []client.SettingChange) {
	for _, s := range changes {
		a.writeChange(w, "~", fmt.Sprintf("%s.%s: %s -> %s", of, s.Field, terminal.Clean(settingText(s.Before)), terminal.Clean(settingText(s.After))))
	}
}

// totals returns a sentence with the numbers of gateways that differ, and others of plans and issuers if there are any.
func (o *configRun) totals(list []*apply.Difference, when tense) string {
	n := map[apply.Kind]map[apply.Action]int{apply.Gateway: {}, apply.Plan: {}, apply.Issuer: {}}
	for _, d := range list {
		if !d.Again() { // the plan was counted
			n[d.Kind][d.Action]++
		}
	}
	verbs := [3]string{"created", "changed", "deleted"}
	if when != made {
		verbs = [3]string{"to create", "to change", "to delete"}
	}
	var sentences []string
	for _, of := range []struct {
		what  string
		count map[apply.Action]int
		shown bool
	}{{"Gateways", n[apply.Gateway], len(n[apply.Gateway]) > 0 || o.set.OfGateways()}, {"Plans", n[apply.Plan], len(n[apply.Plan]) > 0},
		{"Issuers", n[apply.Issuer], len(n[apply.Issuer]) > 0}} {
		if of.shown {
			sentences = append(sentences, fmt.Sprintf("%s: %d %s, %d %s, %d %s, %d without differences.", of.what,
				of.count[apply.Create], verbs[0], of.count[apply.Update], verbs[1], of.count[apply.Delete], verbs[2], of.count[apply.Keep]))
		}
	}
	return strings.Join(sentences, " ")
}
