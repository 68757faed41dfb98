package apply

import (
	"reflect"
	"slices"

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
	for field, text := range map[string]*string{
		"sustained": l.Sustained, "burst": l.Burst, "quota": l.Quota, "meter": l.Meter, "overage": (*string)(l.Overage), "per": (*string)(l.Per), "gateway": l.GatewayID,
	} {
		if text != nil && *text != "" && *text != limitDefaults()[field] {
			v[field] = *text
		}
	}
	if l.Concurrency != nil {
		v["concurrency"] = *l.Concurrency
	}
	if of, known := v["gateway"].(string); known && names[of] != "" {
		v["gateway"] = names[of]
	}
	if l.WarnAt != nil && !slices.Equal(percentagesOf(*l.WarnAt), plan.DefaultWarnAt()) {
		v["warn_at"] = listOf(*l.WarnAt)
	}
	if l.Routes != nil && len(*l.Routes) > 0 {
		v["routes"] = listOf(*l.Routes)
	}
	return limitView{l.Name, v}
}

// limitDefaults returns the defaults of fields of limits.
func limitDefaults() map[string]string {
	return map[string]string{"meter": plan.DefaultMeter, "overage": string(plan.OverageRefuse), "per": string(plan.PerKey)}
}

func listOf[T any](list []T) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// percentagesOf returns a list that is not nil.
func percentagesOf(list []int64) []int {
	out := make([]int, len(list))
	for i := range list {
		out[i] = int(list[i])
	}
	return out
}

// PlanLimit returns a limit of a file in the form of the API's requests. of is what GatewayID says.
func PlanLimit(l *plan.Limit, of string) client.PlanLimitInput {
	per := client.PlanLimitInputPer(l.Per)
	in := client.PlanLimitInput{
		Name: l.Name, Sustained: orAbsent(l.Sustained.String()), Burst: orAbsent(l.Burst.String()), Quota: orAbsent(l.Quota.String()), Meter: orAbsent(l.Meter),
		Overage: orAbsent(client.PlanLimitInputOverage(l.Overage)), Per: &per, GatewayID: orAbsent(of),
	}
	if l.IsConcurrency() {
		in.Concurrency = &l.Concurrency
	}
	if l.WarnAt != nil {
		warnAt := make([]int64, len(l.WarnAt))
		for i, percent := range l.WarnAt {
			warnAt[i] = int64(percent)
		}
		in.WarnAt = &warnAt
	}
	if routes := l.Routes; len(routes) > 0 {
		in.Routes = &routes
	}
	return in
}

func orAbsent[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// LimitInputs returns the limits of a record in the form of the API's requests.
func LimitInputs(limits []client.PlanLimit) []client.PlanLimitInput {
	in := make([]client.PlanLimitInput, len(limits))
	for i := range limits {
		l := &limits[i]
		per := client.PlanLimitInputPer(l.Per)
		in[i] = client.PlanLimitInput{
			Name: l.Name, Sustained: l.Sustained, Burst: l.Burst, Quota: l.Quota, Concurrency: l.Concurrency, Meter: orAbsent(l.Meter), Overage: (*client.PlanLimitInputOverage)(l.Overage),
			WarnAt: l.WarnAt, Per: &per, GatewayID: l.GatewayID, Routes: &l.Routes,
		}
	}
	return in
}
