package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"

	"github.com/keygate/keygate/internal/gateway"
)

// CompareRevisions returns what differs between two revisions of a gateway, as if to had been pushed
// while from was in force. from may be 0 for the state before the first revision. Routes that were
// removed have the identifiers of from, the others the identifiers of to. Settings are the settings
// of to, if it is a configuration file, whose values differ from those in from (nil if from has
// none). Revisions that do not exist, or are no longer kept, are fault.NotFound.
func (s *Service) CompareRevisions(ctx context.Context, actor *Actor, gatewayID string, from, to int64) (*PushResult, error) {
	before := &gateway.Revision{}
	after, err := readOf(ctx, s, actor, gatewayID, func(tx ReadTx, g *gateway.Gateway) (*gateway.Revision, error) {
		after, err := s.revision(ctx, tx, g, to)
		if err == nil && from != 0 {
			before, err = s.revision(ctx, tx, g, from)
		}
		return after, err
	})
	if err != nil {
		return nil, err
	}
	release, err := s.heavy(ctx, len(before.Content)+len(after.Content))
	if err != nil {
		return nil, err
	}
	defer release()
	var values [2]map[string]any
	for i, r := range []*gateway.Revision{before, after} {
		if values[i], err = settingsOf(r); err != nil {
			return nil, err
		}
	}
	d := delta{authBefore: defaultAuthOf(values[0]), authAfter: defaultAuthOf(values[1])}
	d.compareTables(before.Routes, after.Routes)
	return &PushResult{
		Settings:  compareSettings(values[0], values[1]),
		Added:     routeChanges(d.added, true),
		Removed:   routeChanges(d.removed, true),
		Changed:   d.changes(),
		Unchanged: d.unchanged,
		Warnings:  []string{},
	}, nil
}

// settingsOf returns the settings that a revision sets, by name, with digests of certificates: none unless it is a
// configuration file.
func settingsOf(r *gateway.Revision) (map[string]any, error) {
	if r.Kind != gateway.ConfigDocument {
		return nil, nil
	}
	values, err := gateway.SettingValues(r.Content)
	if err != nil {
		return nil, fmt.Errorf("read the settings of revision %d of %s: %w", r.Number, r.GatewayID, err)
	}
	for _, setting := range gateway.Settings() {
		if text, isText := values[setting.Name].(string); isText && setting.Kind == gateway.KindCertificate {
			values[setting.Name] = digestOrNil(text)
		}
	}
	return values, nil
}

// defaultAuthOf returns what routes require that do not say it, as far as the settings of a revision say so.
func defaultAuthOf(values map[string]any) gateway.Auth {
	text, _ := values["default_auth"].(string)
	return cmp.Or(gateway.Auth(text), gateway.DefaultAuth)
}

// compareSettings returns the settings that a revision sets, and the revision before it does not set or sets differently. A
// setting that a file does not set stays as it is when the file is pushed.
func compareSettings(was, is map[string]any) []SettingChange {
	var changes []SettingChange
	for _, name := range gateway.SettingNames() {
		after, sets := is[name]
		if before := was[name]; sets && !reflect.DeepEqual(before, after) {
			changes = append(changes, SettingChange{Field: name, Before: before, After: after})
		}
	}
	return append(changes, compareUpstreams(was[upstreamsField], is[upstreamsField])...)
}

// compareUpstreams returns the upstreams that a file adds, removes or changes against the file before it. A file without the
// list changes none.
func compareUpstreams(before, after any) []SettingChange {
	was, _ := upstreamsByName(before)
	is, given := upstreamsByName(after)
	if !given {
		return nil
	}
	names := maps.Clone(was)
	maps.Copy(names, is)
	var changes []SettingChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(was[name], is[name]) {
			changes = append(changes, SettingChange{Field: upstreamsField + "." + name, Before: was[name], After: is[name]})
		}
	}
	return changes
}

// upstreamsByName returns the entries of a list of upstreams in a file, with digests of certificates. given is false if the
// file has no list.
func upstreamsByName(list any) (byName map[string]any, given bool) {
	byName = map[string]any{}
	entries, given := list.([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		entry = maps.Clone(entry)
		name, _ := entry["name"].(string)
		delete(entry, "name")
		for _, s := range gateway.UpstreamSettings() {
			if text, isText := entry[s.Name].(string); isText && s.Kind == gateway.KindCertificate {
				entry[s.Name] = digestOrNil(text)
			}
		}
		byName[name] = entry
	}
	return byName, given
}

// compareTables adds to d how two route tables differ, without a new table.
func (d *delta) compareTables(before, after []gateway.Route) {
	remaining := make(map[string]*gateway.Route, len(before))
	for i := range before {
		remaining[routeKey(&before[i])] = &before[i]
	}
	for i := range after {
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		r := &after[i]
		key := routeKey(r)
		was := remaining[key]
		delete(remaining, key)
		switch {
		case was == nil:
			d.added = append(d.added, *r)
		case was.RateLimit != r.RateLimit || was.Concurrency != r.Concurrency || d.changesAuth(was, r) || was.Upstream != r.Upstream || !was.Split.Equal(r.Split) || !d.costs.same(was.Cost, r.Cost):
			d.changed, d.replaced = append(d.changed, *r), append(d.replaced, was)
		default:
			d.unchanged++
		}
	}
	for i := range before {
		if remaining[routeKey(&before[i])] != nil {
			d.removed = append(d.removed, before[i])
		}
	}
}
