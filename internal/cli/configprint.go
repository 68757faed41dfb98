package cli

import (
	"fmt"
	"io"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/gateway"
)

// settingChange is a field of the file's section gateway that differs from the
// gateway's current value.
type settingChange struct {
	Field  string  `json:"field"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// difference is the output of config diff and config apply for one gateway.
type difference struct {
	File      string `json:"file,omitempty"` // "" for a gateway that is deleted
	Action    action `json:"action"`
	GatewayID string `json:"gateway_id,omitempty"` // "" for a gateway that does not exist yet
	Name      string `json:"name"`
	*client.Push
	Gateway []settingChange `json:"gateway"`
}

// gatewayChanges compares the section gateway of a file with the current gateway. An
// absent field changes nothing; null removes the field.
func gatewayChanges(s *gateway.Section, current *client.Gateway) []settingChange {
	changes := []settingChange{}
	add := func(name, before, after string) {
		if before != after {
			changes = append(changes, settingChange{name, given(before), given(after)})
		}
	}
	if s.Name.Present {
		add("name", current.Name, s.Name.Value)
	}
	if s.UpstreamURL.Present {
		add("upstream_url", current.UpstreamURL, s.UpstreamURL.Value)
	}
	if s.GlobalLimit.Present {
		after := ""
		if limit := s.GlobalLimit.Value; !limit.IsZero() {
			sustained, burst := limit.Sustained.String(), limit.Burst.String()
			after = globalLimit(&client.GlobalLimit{Sustained: given(sustained), Burst: given(burst)})
		}
		add("global_rate_limit", globalLimit(current.GlobalRateLimit), after)
	}
	return changes
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
	for i := range p.Gateway {
		for _, value := range []**string{&p.Gateway[i].Before, &p.Gateway[i].After} {
			if *value != nil {
				shown := hide(**value)
				*value = &shown
			}
		}
	}
	for _, routes := range [][]client.RouteChange{p.Added, p.Removed, p.Changed} {
		for i := range routes {
			routes[i].Path = hide(routes[i].Path)
		}
	}
	for i := range p.Warnings {
		p.Warnings[i] = hide(p.Warnings[i])
	}
}

// print prints the plan for people, or for programs: an object for one file, an array for a
// directory.
func (o *configRun) print(plan []*planned, dryRun bool) error {
	switch {
	case o.forPeople():
		when := made
		if dryRun {
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
		return o.printData(plan[0].difference)
	}
	all := make([]difference, len(plan))
	for i, p := range plan {
		all[i] = p.difference
	}
	return o.printData(all)
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
		o.writeChange(w, mark, clean(head)+", which does not exist yet")
	case o.set.dir != "" || p.Action == createGateway:
		o.writeChange(w, mark, clean(head))
	}
	if p.Action == deleteGateway {
		return
	}
	for _, s := range p.Gateway {
		o.writeChange(w, "~", fmt.Sprintf("gateway.%s: %s -> %s", s.Field, clean(str(s.Before)), clean(str(s.After))))
	}
	o.writePush(w, p.Push, when, o.verbose)
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
