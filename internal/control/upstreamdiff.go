package control

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/gateway"
)

// upstreamsDiff returns how the upstreams of two states of a gateway differ, by paths such as upstreams.next.timeout and
// upstreams.next.targets.https://10.0.0.1.weight. What the settings of the gateway say of its default upstream is not part
// of it. before or after is nil if the gateway does not exist then. If many targets differ, it has lists of targets
// (boundTargets).
func upstreamsDiff(before, after *gateway.Gateway) audit.Diff {
	d, targets, lists, changed := audit.Diff{}, audit.Diff{}, audit.Diff{}, 0
	for _, name := range upstreamNames(before, after) {
		was, is := comparedUpstream(before, name), comparedUpstream(after, name)
		for field, values := range differ(upstreamFields(before, was, is == nil), upstreamFields(after, is, was == nil)) {
			d[upstreamPath(name, field)] = values
		}
		one, n := targetsDiff(was, is)
		for path, values := range one {
			targets[upstreamPath(name, path)] = values
		}
		if changed += n; n > 0 {
			lists[name] = [2]any{targetList(was), targetList(is)}
		}
		if was == nil || is == nil {
			continue
		}
		if !maps.EqualFunc(was.Health.SealedHeaders(), is.Health.SealedHeaders(), bytes.Equal) {
			d[upstreamPath(name, "health")] = [2]any{healthOrNil(was.HealthOf()), healthOrNil(is.HealthOf())}
		}
		if name == gateway.DefaultUpstream {
			continue
		}
		// Masked, the old and the new value of a secret read the same.
		if !maps.EqualFunc(was.Headers, is.Headers, bytes.Equal) {
			d[upstreamPath(name, "headers")] = [2]any{upstreamFields(before, was, false)["headers"], upstreamFields(after, is, false)["headers"]}
		}
		if !bytes.Equal(was.TLS.ClientKey, is.TLS.ClientKey) {
			d[upstreamPath(name, "client_key")] = [2]any{upstreamFields(before, was, false)["client_key"], upstreamFields(after, is, false)["client_key"]}
		}
	}
	if changed > maxTargetDiffs {
		targets = boundTargets(lists)
	}
	maps.Copy(d, targets)
	return d
}

const (
	maxTargetDiffs = 32 // targets of a gateway that a diff has by themselves
	maxListDiffs   = 32 // upstreams of which a diff has all targets
)

// boundTargets returns the diff of a gateway of which more than maxTargetDiffs targets differ: it has the path
// upstreams.NAME.targets for each upstream in lists, or only upstreams if there are more than maxListDiffs. It has an
// audit.Omitted instead of a value that is larger than audit.MaxDiffValue, as the audit log does.
func boundTargets(lists audit.Diff) audit.Diff {
	d := audit.Diff{}
	if len(lists) > maxListDiffs {
		before, after := map[string]any{}, map[string]any{}
		for name, values := range lists {
			before[name], after[name] = values[0], values[1]
		}
		d[upstreamsField] = [2]any{before, after}
	} else {
		for name, values := range lists {
			d[upstreamPath(name, "targets")] = values
		}
	}
	encoded, err := audit.EncodeDiff(d)
	if err != nil {
		return d
	}
	bounded, err := audit.DecodeDiff(encoded)
	if err != nil {
		return d
	}
	return bounded
}

// targetList returns the targets of u, which may be nil, with their settings.
func targetList(u *gateway.Upstream) any {
	all := targetsOf(u)
	if all == nil {
		return nil
	}
	list := make([]fields, len(all))
	for i := range all {
		list[i] = targetFields(&all[i])
		list[i]["url"] = all[i].URL
	}
	return list
}

func upstreamPath(name, field string) string { return upstreamsField + "." + name + "." + field }

// upstreamNames returns the names of the upstreams of both gateways, each of which may be nil.
func upstreamNames(before, after *gateway.Gateway) []string {
	names := map[string]bool{}
	for _, g := range []*gateway.Gateway{before, after} {
		if g == nil {
			continue
		}
		for u := range g.AllUpstreams {
			names[u.FullName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// comparedUpstream returns the upstream of g that is compared: nil if there is none.
func comparedUpstream(g *gateway.Gateway, name string) *gateway.Upstream {
	if g == nil {
		return nil
	}
	return g.UpstreamNamed(name)
}

// upstreamFields returns the settings of u, an upstream of g, except for its targets. If brief is set, those with their
// defaults are left out. Of the default upstream, only what the settings of the gateway do not say is part of it.
func upstreamFields(g *gateway.Gateway, u *gateway.Upstream, brief bool) fields {
	if u == nil {
		return nil
	}
	f := fields{}
	alone := g.Alone(u)
	for _, s := range gateway.UpstreamSettings() {
		v := s.Value(alone)
		switch {
		case s.Kind == gateway.KindTargets, u.Name == "" && s.GatewaySetting() != "", brief && reflect.DeepEqual(v, s.Default()):
		default:
			f[s.Name] = settingOrNil(s.Kind, v)
		}
	}
	return f
}

// targetsDiff returns how the targets of an upstream differ, by their URLs, and how many differ. The URL of a default upstream
// that has one plain target is upstream_url.
func targetsDiff(was, is *gateway.Upstream) (d audit.Diff, changed int) {
	if isPlainDefault(was) && isPlainDefault(is) {
		return nil, 0
	}
	d = audit.Diff{}
	before, after := targetsOf(was), targetsOf(is)
	for i, t := range before {
		if find(after, t.URL) < 0 {
			d["targets."+t.URL] = [2]any{targetFields(&before[i]), nil}
			changed++
		}
	}
	for i := range after {
		t := &after[i]
		at := find(before, t.URL)
		if at < 0 {
			d["targets."+t.URL] = [2]any{nil, targetFields(t)}
			changed++
			continue
		}
		differs := differ(targetFields(&before[at]), targetFields(t))
		for name, values := range differs {
			d["targets."+t.URL+"."+name] = values
		}
		changed += min(1, len(differs))
	}
	if len(d) == 0 && !slices.EqualFunc(before, after, func(a, b gateway.Target) bool { return a.URL == b.URL }) {
		d["targets"] = [2]any{urlsOf(before), urlsOf(after)} // in another order
		changed = len(after)
	}
	return d, changed
}

// isPlainDefault reports whether u is nil, or a default upstream whose only target has no settings of its own.
func isPlainDefault(u *gateway.Upstream) bool { return u == nil || u.Name == "" && u.Targets == nil }

func targetsOf(u *gateway.Upstream) []gateway.Target {
	if u == nil || u.URL == "" { // of a gateway that is about to be created
		return nil
	}
	return u.AllTargets()
}

func find(list []gateway.Target, url string) int {
	return slices.IndexFunc(list, func(t gateway.Target) bool { return t.URL == url })
}

func urlsOf(list []gateway.Target) []string {
	urls := make([]string, len(list))
	for i := range list {
		urls[i] = list[i].URL
	}
	return urls
}

func targetFields(t *gateway.Target) fields {
	return fields{"weight": t.WeightOf(), "backup": t.Backup, "drain": t.Drain, "resolve": string(t.ResolveOf())}
}

// ejectionOrFalse returns an ejection as the audit log has it.
func ejectionOrFalse(e gateway.Ejection) any {
	if e.Off {
		return false
	}
	return map[string]any{"failures": e.Failures, "on": e.On, "base": e.Base, "max": e.Max, "max_percent": e.MaxPercent}
}

// healthOrNil returns checks as the audit log has them.
func healthOrNil(h gateway.Health) any {
	if h.IsZero() {
		return nil
	}
	m := map[string]any{"interval": h.Interval, "timeout": h.Timeout, "unhealthy": h.Unhealthy, "healthy": h.Healthy}
	switch {
	case h.GRPC != nil:
		m["grpc"] = *h.GRPC
	case h.TCP:
		m["tcp"] = true
	default:
		m["path"], m["statuses"] = h.Path, h.Statuses
	}
	if len(h.Headers) > 0 {
		m["headers"] = h.Headers
	}
	return m
}

// upstreamChanges returns the changes of upstreams in a diff, in the order of their paths.
func upstreamChanges(diff audit.Diff) []SettingChange {
	var changes []SettingChange
	for _, path := range slices.Sorted(maps.Keys(diff)) {
		if path == upstreamsField || strings.HasPrefix(path, upstreamsField+".") {
			changes = append(changes, SettingChange{Field: path, Before: diff[path][0], After: diff[path][1]})
		}
	}
	return changes
}
