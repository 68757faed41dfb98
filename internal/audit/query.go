package audit

import (
	"time"

	"github.com/keygate/keygate/internal/id"
)

// query is a filter, prepared for matching blocks and records.
type query struct {
	filter       Filter
	classes      uint8
	elements     []element
	since, until int64 // microseconds; until is excluded

	prefix, key, gateway string // as encoded in dictionaries
}

func newQuery(f Filter) *query {
	q := &query{filter: f, classes: f.classes(), elements: f.elements(), since: -1 << 63, until: 1<<63 - 1,
		prefix: f.prefix(), key: f.key(), gateway: f.gateway()}
	if !f.Since.IsZero() {
		q.since = ceilMicro(f.Since)
	}
	if !f.Until.IsZero() {
		q.until = ceilMicro(f.Until)
	}
	return q
}

// ceilMicro returns t in microseconds, rounded up: the times of records are whole
// microseconds.
func ceilMicro(t time.Time) int64 {
	us := t.UnixMicro()
	if t.After(time.UnixMicro(us)) {
		us++
	}
	return us
}

func (q *query) overlaps(first, last int64) bool { return last >= q.since && first < q.until }

// matches calls f with the index of each record that q matches, the last first, until f
// returns false.
func (q *query) matches(v *View, f func(i int) (bool, error)) error {
	if len(v.times) == 0 || !q.overlaps(v.times[0], v.times[len(v.times)-1]) {
		return nil
	}
	callers := make([]bool, len(v.callers))
	some := false
	passes := func(want, is string) bool { return want == writtenNothing || want == is }
	for i := range v.callers {
		c := &v.callers[i]
		callers[i] = passes(q.prefix, c.prefix) && passes(q.key, c.key) && passes(q.gateway, c.gateway)
		some = some || callers[i]
	}
	if !some {
		return nil
	}
	for i := v.n - 1; i >= 0; i-- {
		at := v.times[i]
		if at < q.since {
			break
		}
		if at >= q.until || !callers[v.caller[i]] || q.classes&(1<<v.calls[v.call[i]].class) == 0 {
			continue
		}
		if q.filter.Actor != "" {
			if err := v.All(); err != nil {
				return err
			}
			if more := v.rest.extras[i]; more == nil || actorID(more.actor) != q.filter.Actor {
				continue
			}
		}
		if more, err := f(i); err != nil || !more {
			return err
		}
	}
	return nil
}

// elements returns the elements that a block must have to have a record that f matches.
func (f *Filter) elements() (all []element) {
	rare := byte(common)
	switch {
	case f.Outcome == KeyInvalid:
		rare = rareInvalid
	case f.Outcome == KeyExpired:
		rare = rareExpired
	case f.Outcome == ScopeInsufficient:
		rare = rareScope
	case f.Outcome == AddressNotAllowed:
		rare = rareAddress
	case f.Kind == Management:
		rare = rareManaging
	}
	for _, want := range [...]struct {
		field   byte
		written string
	}{{ofPrefix, f.prefix()}, {ofKey, f.key()}, {ofGateway, f.gateway()}, {ofActor, string(appendText(nil, f.Actor))}} {
		if want.written == writtenNothing {
			continue
		}
		all = append(all, elementOf(want.field, rare, want.written))
		if f.GatewayID == "" {
			continue
		}
		switch want.field {
		case ofKey:
			all = append(all, elementOf(ofKeyAtGateway, rare, want.written+f.gateway()))
		case ofPrefix:
			all = append(all, elementOf(ofPrefixAtGateway, rare, want.written+f.gateway()))
		}
	}
	return all
}

// prefix, key and gateway return the values of the filter as encoded in dictionaries.
func (f *Filter) prefix() string  { return string(appendText(nil, f.KeyPrefix)) }
func (f *Filter) key() string     { return string(appendID(nil, id.Key, f.KeyID)) }
func (f *Filter) gateway() string { return string(appendID(nil, id.Gateway, f.GatewayID)) }
