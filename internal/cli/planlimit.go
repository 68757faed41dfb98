package cli

import (
	"strconv"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// planLimitHelp describes --limit of a plan.
const planLimitHelp = "`limit` of the plan, such as per-minute=600/min,burst=100/s,per=owner per-month=quota:100000/month or parallel=concurrency:5; may be repeated"

// aboutPlanLimits is the part of help texts about --limit.
const aboutPlanLimits = `A limit is NAME=RATE, or NAME=quota:COUNT/WINDOW for a quota, whose windows are those of a
calendar: day, week, month or total, which never ends; or NAME=concurrency:COUNT for requests
in flight, streams and upgrades included. Then come parts that are separated by commas:

  burst=RATE      of a rate: capacity, such as 100/s (default: its count)
  meter=METER     of a rate or a quota, what it counts: requests (default),
                  bytes_in for the bodies of requests, bytes_out for those of
                  responses, or the meter of a cost of routes
  overage=allow   of a quota: count requests beyond it, and refuse none
  warn-at=50,80   of a quota: percentages at which the event quota.threshold
                  is raised (default: 80,100), or none
  per=key|owner   whom it counts: each key (default), or all keys of an owner
                  together
  gateway=ID      the only gateway that it is for, by id, name or hostname
  route=PATH      the path of a route of it, or /prefix/*; may be repeated`

// quotaPrefix is what stands before the count of a quota in --limit, since 1000/day could be a rate as well.
const quotaPrefix = "quota:"

// concurrencyPrefix is what stands before the number of requests in flight in --limit.
const concurrencyPrefix = "concurrency:"

// noWarnings is the value of the part warn-at that means an empty list.
const noWarnings = "none"

// parsePlanLimit parses the value of --limit. GatewayID is what the value says, which may be a name.
func parsePlanLimit(text string) (l client.PlanLimitInput, err error) {
	name, rest, found := strings.Cut(text, "=")
	parts := strings.Split(rest, ",")
	count := strings.TrimSpace(parts[0])
	if quota, isQuota := strings.CutPrefix(count, quotaPrefix); isQuota {
		count = quota
		l.Quota = &count
	} else if most, isConcurrency := strings.CutPrefix(count, concurrencyPrefix); isConcurrency {
		n, err := strconv.ParseInt(most, 10, 64)
		if err != nil {
			return l, badPlanLimit(text)
		}
		l.Concurrency = &n
	} else {
		l.Sustained = &count
	}
	if l.Name = strings.TrimSpace(name); !found || l.Name == "" || count == "" {
		return l, badPlanLimit(text)
	}
	p := planLimitParts{PlanLimitInput: &l}
	for _, part := range parts[1:] {
		if !p.add(part) {
			return l, badPlanLimit(text)
		}
	}
	if p.routes != nil {
		l.Routes = &p.routes
	}
	return l, nil
}

// planLimitParts reads the parts of a limit after the first.
type planLimitParts struct {
	*client.PlanLimitInput
	routes []string
	list   string // the field of the part before, if it is a list that may go on behind a comma
}

// add reads one part, and reports whether it may stand there.
func (p *planLimitParts) add(part string) bool {
	field, value, named := strings.Cut(part, "=")
	field, value = strings.TrimSpace(field), strings.TrimSpace(value)
	before := p.list
	if named {
		p.list = ""
	}
	switch {
	case !named && before == "route": // a comma in a path
		p.routes[len(p.routes)-1] += "," + part
	case !named && before == "warn-at":
		return p.addPercentage(field)
	case value == "":
		return false
	case field == "burst" && p.Burst == nil:
		p.Burst = &value
	case field == "meter" && p.Meter == nil:
		p.Meter = &value
	case field == "overage" && p.Overage == nil:
		p.Overage = given(client.PlanLimitInputOverage(value))
	case field == "warn-at" && p.WarnAt == nil:
		if p.WarnAt = new([]int64); value == noWarnings {
			*p.WarnAt = []int64{}
			return true
		}
		p.list = field
		return p.addPercentage(value)
	case field == "per" && p.Per == nil:
		p.Per = given(client.PlanLimitInputPer(value))
	case field == "gateway" && p.GatewayID == nil:
		p.GatewayID = &value
	case field == "route":
		p.routes, p.list = append(p.routes, value), field
	default:
		return false
	}
	return true
}

func (p *planLimitParts) addPercentage(text string) bool {
	percent, err := strconv.ParseInt(text, 10, 64)
	*p.WarnAt = append(*p.WarnAt, percent)
	return err == nil
}

func badPlanLimit(text string) error {
	return usagef("--limit %q must be NAME=RATE with parts, such as per-minute=600/min,burst=100/s,per=owner,gateway=orders,route=/search/*; "+
		"or a quota such as per-month=quota:100000/month,overage=allow,warn-at=50,100, or a number of requests in flight such as parallel=concurrency:5; each part but route once", text)
}

// planLimitText returns a limit without its name, in the form that --limit takes.
func planLimitText(l *client.PlanLimit) string {
	text := str(l.Sustained)
	if l.Quota != nil {
		text = quotaPrefix + *l.Quota
	}
	if l.Concurrency != nil {
		text = concurrencyPrefix + strconv.FormatInt(*l.Concurrency, 10)
	}
	for _, part := range []struct{ field, value, fallback string }{
		{"burst", str(l.Burst), ""}, {"meter", l.Meter, ratelimit.Requests}, {"overage", str(l.Overage), string(plan.OverageRefuse)}, {"warn-at", percentagesText(l.WarnAt), defaultWarnAt()},
		{"per", string(l.Per), string(plan.PerKey)}, {"gateway", str(l.GatewayID), ""},
	} {
		if part.value != "" && part.value != part.fallback {
			text += "," + part.field + "=" + part.value
		}
	}
	for _, path := range l.Routes {
		text += ",route=" + path
	}
	return text
}

func defaultWarnAt() string {
	var list []int64
	for _, percent := range plan.DefaultWarnAt() {
		list = append(list, int64(percent))
	}
	return percentagesText(&list)
}

// percentagesText returns percentages as the part warn-at takes them; "" for nil, that is for a rate.
func percentagesText(list *[]int64) string {
	switch {
	case list == nil:
		return ""
	case len(*list) == 0:
		return noWarnings
	}
	texts := make([]string, len(*list))
	for i, percent := range *list {
		texts[i] = strconv.FormatInt(percent, 10)
	}
	return strings.Join(texts, ",")
}

// planLimitsText returns limits on one line.
func planLimitsText(limits []client.PlanLimit) string {
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = limits[i].Name + "=" + planLimitText(&limits[i])
	}
	return strings.Join(texts, " ")
}
