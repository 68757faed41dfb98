package balance

import (
	"slices"
	"time"
)

// Observe calls each with every upstream and the state of its targets, as Upstream.Observe has it, until each returns false.
// Upstreams that are gone come with what they have in flight. Of upstreams with one target, those come whose target drains, or was
// replaced with requests in flight. each must not keep the list.
func (f *Fleet) Observe(now time.Duration, each func(Name, []Status) bool) {
	all, lones := f.observed()
	var list []Status
	for i := 0; i < len(all); i++ {
		n := all[i].name
		list = all[i].Observe(now, list[:0])
		for ; i+1 < len(all) && all[i+1].name == n; i++ {
			list = withDropped(list, all[i+1].Observe(now, nil))
		}
		list = withLones(list, lones[n])
		delete(lones, n)
		if !each(n, list) {
			return
		}
	}
	for n, of := range lones {
		if !each(n, withLones(list[:0], of)) {
			return
		}
	}
}

// ObserveOne returns what Observe passes for one upstream.
func (f *Fleet) ObserveOne(now time.Duration, n Name) (list []Status) {
	f.mu.Lock()
	var all []*Upstream
	if u := f.upstreams[n]; u != nil {
		all = append(all, u)
	}
	for _, u := range f.dropped {
		if u.name == n {
			all = append(all, u)
		}
	}
	lones := f.statusOfLones(func(of Name) bool { return of == n })
	f.mu.Unlock()
	for _, u := range all {
		list = withDropped(list, u.Observe(now, nil))
	}
	return withLones(list, lones[n])
}

// observed returns the upstreams, those of one name one after the other and the newest first, and what is kept of only targets.
func (f *Fleet) observed() (all []*Upstream, lones map[Name][]keptStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dropped := map[Name][]*Upstream{}
	for _, u := range f.dropped {
		dropped[u.name] = append(dropped[u.name], u)
	}
	for n, u := range f.upstreams {
		all = append(append(all, u), dropped[n]...)
		delete(dropped, n)
	}
	for _, rest := range dropped {
		all = append(all, rest...)
	}
	return all, f.statusOfLones(func(Name) bool { return true })
}

// statusOfLones returns what is kept of only targets, of the upstreams for which of returns true. The caller holds the lock.
func (f *Fleet) statusOfLones(of func(Name) bool) map[Name][]keptStatus {
	lones := map[Name][]keptStatus{}
	for l, kept := range f.lones {
		if of(kept.name) {
			s := l.Status()
			s.Draining = s.Draining || kept.gone
			lones[kept.name] = append(lones[kept.name], keptStatus{s, kept.gone})
		}
	}
	return lones
}

// withDropped adds to the list of an upstream what one of the same name, which was dropped before, has in flight.
func withDropped(list, dropped []Status) []Status {
	if len(list) == 0 {
		return append(list, dropped...)
	}
	for _, s := range dropped {
		if i := slices.IndexFunc(list, func(o Status) bool { return o.URL == s.URL && o.Address == s.Address }); i >= 0 {
			list[i].Own += s.Own
			continue
		}
		list = append(list, s)
	}
	return list
}

// keptStatus is the state of an only target that drains or has left.
type keptStatus struct {
	Status
	gone bool
}

// withLones adds to the list of an upstream what its former only targets have in flight, to the state of the same target if that is there.
func withLones(list []Status, lones []keptStatus) []Status {
	slices.SortFunc(lones, func(a, b keptStatus) int { return compareBool(a.gone, b.gone) }) // the present one, which drains, first
	for _, l := range lones {
		i := slices.IndexFunc(list, func(s Status) bool { return s.URL == l.URL && l.gone })
		switch {
		case i >= 0:
			list[i].InFlight += l.InFlight
			list[i].Own += l.Own
			list[i].Requests += l.Requests
		case !l.gone || l.Own > 0:
			list = append(list, l.Status)
		}
	}
	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// InFlight returns the requests of an upstream in flight at a target, at all of its addresses, whether or not the upstream still
// has the target.
func (f *Fleet) InFlight(now time.Duration, n Name, url string) (open int64) {
	for _, s := range f.ObserveOne(now, n) {
		if s.URL == url {
			open += s.Own
		}
	}
	return open
}

// Return ends the ejections of a target of an upstream by hand, at all of its addresses (section 3). It reports whether there was
// one.
func (f *Fleet) Return(now time.Duration, n Name, url string) (ended bool) {
	f.mu.Lock()
	u := f.upstreams[n]
	f.mu.Unlock()
	if u == nil {
		return false
	}
	u.mu.Lock()
	t := u.table
	u.mu.Unlock()
	for i := range t.targets {
		if t.targets[i].url == url && t.targets[i].address.Return(now) {
			ended = true
		}
	}
	return ended
}

// AllUnhealthy returns what Upstream.AllUnhealthy returns of an upstream; false if there is no such upstream.
func (f *Fleet) AllUnhealthy(now time.Duration, n Name) bool {
	f.mu.Lock()
	u := f.upstreams[n]
	f.mu.Unlock()
	return u != nil && u.AllUnhealthy(now)
}
