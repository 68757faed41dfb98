package apply

import (
	"reflect"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/plan"
)

// limitView is a limit as a difference shows it: as in a file, without its name.
type limitView struct {
	name  string
	value map[string]any
}

// limitChanges returns a change for each limit that differs, by its name. The order of limits has no effect.
func limitChanges(before, after []limitView) (changes []client.SettingChange) {
	left := map[string]map[string]any{}
	for _, v := range before {
		left[v.name] = v.value
	}
	for _, v := range after {
		was, there := left[v.name]
		delete(left, v.name)
		if there && reflect.DeepEqual(was, v.value) {
			continue
		}
		change := client.SettingChange{Field: "limits." + v.name, After: v.value}
		if there {
			change.Before = was
		}
		changes = append(changes, change)
	}
	for _, v := range before {
		if was, there := left[v.name]; there {
			changes = append(changes, client.SettingChange{Field: "limits." + v.name, Before: was})
		}
	}
	return changes
}

// wantedLimits returns the limits of a plan of a file, without those whose gateway is created.
func wantedLimits(want *plan.FilePlan, created []*Difference) (views []limitView) {
	for i := range want.Limits {
		if len(created) == 0 || created[i] == nil {
			views = append(views, view(PlanLimit(&want.Limits[i], want.Gateways[i]), nil))
		}
	}
	return views
}

// viewsOf returns limits with the names of their gateways. One that is not known has its identifier.
func viewsOf(limits []client.PlanLimitInput, names map[string]string) (views []limitView) {
	for i := range limits {
		views = append(views, view(limits[i], names))
	}
	return views
}

func view(l client.PlanLimitInput, names map[string]string) limitView {
	v := map[string]any{}
	for field, text := range map[string]*string{"sustained": l.Sustained, "burst": l.Burst, "per": (*string)(l.Per), "gateway": l.GatewayID} {
		if text != nil && *text != "" && *text != string(plan.PerKey) {
			v[field] = *text
		}
	}
	if of, known := v["gateway"].(string); known && names[of] != "" {
		v["gateway"] = names[of]
	}
	if l.Routes != nil && len(*l.Routes) > 0 {
		var routes []any
		for _, path := range *l.Routes {
			routes = append(routes, path)
		}
		v["routes"] = routes
	}
	return limitView{l.Name, v}
}

// PlanLimit returns a limit of a file in the form of the API's requests. of is what GatewayID says.
func PlanLimit(l *plan.Limit, of string) client.PlanLimitInput {
	sustained, burst, per, routes := l.Sustained.String(), l.Burst.String(), client.PlanLimitInputPer(l.Per), l.Routes
	in := client.PlanLimitInput{Name: l.Name, Sustained: &sustained, Per: &per}
	if burst != "" {
		in.Burst = &burst
	}
	if of != "" {
		in.GatewayID = &of
	}
	if len(routes) > 0 {
		in.Routes = &routes
	}
	return in
}

// LimitInputs returns the limits of a record in the form of the API's requests.
func LimitInputs(limits []client.PlanLimit) []client.PlanLimitInput {
	in := make([]client.PlanLimitInput, len(limits))
	for i := range limits {
		l := &limits[i]
		per := client.PlanLimitInputPer(l.Per)
		in[i] = client.PlanLimitInput{Name: l.Name, Sustained: l.Sustained, Burst: l.Burst, Per: &per, GatewayID: l.GatewayID, Routes: &l.Routes}
	}
	return in
}
