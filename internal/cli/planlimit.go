package cli

import (
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/plan"
)

// planLimitHelp describes --limit of a plan.
const planLimitHelp = "`limit` of the plan, such as per-minute=600/min,burst=100/s,per=owner; may be repeated"

// aboutPlanLimits is the part of help texts about --limit.
const aboutPlanLimits = `A limit is NAME=RATE, and then parts that are separated by commas:

  burst=RATE       capacity, such as 100/s (default: the count of the rate)
  per=key|owner    whom it counts: each key (default), or all keys of an owner together
  gateway=ID       the only gateway that it is for, by id, name or hostname
  route=PATH       the path of a route of it, or /prefix/*; may be repeated`

// parsePlanLimit parses the value of --limit. GatewayID is what the value says, which may be a name.
func parsePlanLimit(text string) (l client.PlanLimitInput, err error) {
	name, rest, found := strings.Cut(text, "=")
	parts := strings.Split(rest, ",")
	if !found || strings.TrimSpace(name) == "" || parts[0] == "" {
		return l, badPlanLimit(text)
	}
	rate := strings.TrimSpace(parts[0])
	l.Name, l.Sustained = strings.TrimSpace(name), &rate
	var routes []string
	for _, part := range parts[1:] {
		field, value, _ := strings.Cut(part, "=")
		field, value = strings.TrimSpace(field), strings.TrimSpace(value)
		switch {
		case field == "burst" && value != "" && l.Burst == nil:
			l.Burst = &value
		case field == "per" && value != "" && l.Per == nil:
			l.Per = given(client.PlanLimitInputPer(value))
		case field == "gateway" && value != "" && l.GatewayID == nil:
			l.GatewayID = &value
		case field == "route" && value != "":
			routes = append(routes, value)
		case len(routes) > 0 && !strings.Contains(part, "="): // a comma in a path
			routes[len(routes)-1] += "," + part
		default:
			return l, badPlanLimit(text)
		}
	}
	if routes != nil {
		l.Routes = &routes
	}
	return l, nil
}

func badPlanLimit(text string) error {
	return usagef("--limit %q must be NAME=RATE with parts, such as per-minute=600/min,burst=100/s,per=owner,gateway=orders,route=/search/*; each but route once", text)
}

// planLimitText returns a limit without its name, in the form that --limit takes.
func planLimitText(l *client.PlanLimit) string {
	text := str(l.Sustained)
	for _, part := range [][2]string{{"burst", str(l.Burst)}, {"per", string(l.Per)}, {"gateway", str(l.GatewayID)}} {
		if part[1] != "" && part[1] != string(plan.PerKey) {
			text += "," + part[0] + "=" + part[1]
		}
	}
	for _, path := range l.Routes {
		text += ",route=" + path
	}
	return text
}

// planLimitsText returns limits on one line.
func planLimitsText(limits []client.PlanLimit) string {
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = limits[i].Name + "=" + planLimitText(&limits[i])
	}
	return strings.Join(texts, " ")
}
