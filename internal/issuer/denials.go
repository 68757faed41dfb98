package issuer

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Denials is the set of the denials of one issuer. A look-up takes as long as two look-ups in a map and a binary search,
// however many there are. It is safe for concurrent use; the zero value is empty.
type Denials struct {
	version atomic.Uint64

	mu       sync.RWMutex
	all      map[string]Denial // by identifier
	subjects map[string][]end  // by subject
	jtis     map[string][]end  // by identifier of a token
	before   []cutoff          // those with IssuedBefore, in the order of their ends
}

// end says when a denial ends. Those of one subject or token are in the order of their ends.
type end struct {
	id    string
	until time.Time
}

func compareEnds(a, b end) int { return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.id, b.id)) }

// cutoff is a denial with IssuedBefore.
type cutoff struct {
	end
	before time.Time
	latest time.Time // the latest IssuedBefore of this denial and of those that end later
}

// Version returns a number that rises with every change.
func (d *Denials) Version() uint64 { return d.version.Load() }

// Len returns the number of denials, those that have ended included.
func (d *Denials) Len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.all)
}

// Put adds a denial, or replaces the one with its identifier.
func (d *Denials) Put(one Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(one.ID)
	if d.all == nil {
		d.all, d.subjects, d.jtis = map[string]Denial{}, map[string][]end{}, map[string][]end{}
	}
	if at := d.add(&one); at >= 0 {
		d.renew(at)
	}
	d.version.Add(1)
}

// add adds a denial that is not there, and returns its index among those with IssuedBefore, or -1.
func (d *Denials) add(one *Denial) int {
	e := end{one.ID, one.Until}
	// Nothing here reads more of it.
	d.all[one.ID] = Denial{ID: one.ID, Subject: one.Subject, JTI: one.JTI, IssuedBefore: one.IssuedBefore, Until: one.Until}
	switch {
	case one.Subject != "":
		with(d.subjects, one.Subject, e)
	case one.JTI != "":
		with(d.jtis, one.JTI, e)
	default:
		at, _ := slices.BinarySearchFunc(d.before, e, compareCutoff)
		d.before = slices.Insert(d.before, at, cutoff{end: e, before: one.IssuedBefore})
		return at
	}
	return -1
}

// Replace makes the set have exactly these denials, each with an identifier of its own. It sorts them in place.
func (d *Denials) Replace(all []Denial) {
	slices.SortFunc(all, func(a, b Denial) int { return compareEnds(end{a.ID, a.Until}, end{b.ID, b.Until}) })
	next := Denials{all: make(map[string]Denial, len(all)), subjects: map[string][]end{}, jtis: map[string][]end{}}
	for n := range all { // in this order, each list grows at its end
		next.add(&all[n])
	}
	next.renew(len(next.before) - 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all, d.subjects, d.jtis, d.before = next.all, next.subjects, next.jtis, next.before
	d.version.Add(1)
}

func compareCutoff(c cutoff, e end) int { return compareEnds(c.end, e) }

// Remove takes a denial away. One that is not there changes nothing.
func (d *Denials) Remove(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.remove(id) {
		d.version.Add(1)
	}
}

// Trim removes the denials that have ended at now. It does not change the version, since they refuse nothing any more.
func (d *Denials) Trim(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.all, func(_ string, one Denial) bool { return !now.Before(one.Until) })
	trim(d.subjects, now)
	trim(d.jtis, now)
	d.before = slices.Clone(d.before[firstInForce(d.before, now, func(c cutoff) time.Time { return c.until }):])
}

// trim removes the denials that have ended at now.
func trim(of map[string][]end, now time.Time) {
	for name, list := range of {
		switch n := firstInForce(list, now, func(e end) time.Time { return e.until }); n {
		case 0:
		case len(list):
			delete(of, name)
		default:
			of[name] = slices.Clone(list[n:])
		}
	}
}

// firstInForce returns the index of the first element of a list, in the order of the ends, that has not ended at now.
func firstInForce[T any](list []T, now time.Time, until func(T) time.Time) int {
	return sort.Search(len(list), func(i int) bool { return now.Before(until(list[i])) })
}

// remove is Remove under the lock. It reports whether there was such a denial.
func (d *Denials) remove(id string) bool {
	one, found := d.all[id]
	if !found {
		return false
	}
	delete(d.all, id)
	switch e := (end{id, one.Until}); {
	case one.Subject != "":
		without(d.subjects, one.Subject, e)
	case one.JTI != "":
		without(d.jtis, one.JTI, e)
	default:
		at, _ := slices.BinarySearchFunc(d.before, e, compareCutoff)
		d.before = slices.Delete(d.before, at, at+1)
		d.renew(at - 1)
	}
	return true
}

// with adds a denial to those of name.
func with(of map[string][]end, name string, e end) {
	at, _ := slices.BinarySearchFunc(of[name], e, compareEnds)
	of[name] = slices.Insert(of[name], at, e)
}

// without removes a denial from those of name.
func without(of map[string][]end, name string, e end) {
	list := of[name]
	at, _ := slices.BinarySearchFunc(list, e, compareEnds)
	if of[name] = slices.Delete(list, at, at+1); len(list) == 1 {
		delete(of, name)
	}
}

// renew computes latest of the element at, which may be new, and of those before it, as far as they depend on it.
func (d *Denials) renew(at int) {
	for n := at; n >= 0; n-- {
		c := &d.before[n]
		latest := c.before
		if next := n + 1; next < len(d.before) && d.before[next].latest.After(latest) {
			latest = d.before[next].latest
		}
		if n < at && latest.Equal(c.latest) {
			return
		}
		c.latest = latest
	}
}

// Denies reports whether one of the denials refuses a token at now, as Denial.Denies does. It allocates only for a
// subject or an identifier of more than 255 bytes.
func (d *Denials) Denies(now time.Time, subject, jti string, issuedAt time.Time) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.all) == 0 {
		return false
	}
	if anyInForce(now, d.subjects[Recorded(subject)]) || jti != "" && anyInForce(now, d.jtis[Recorded(jti)]) {
		return true
	}
	at := firstInForce(d.before, now, func(c cutoff) time.Time { return c.until })
	return at < len(d.before) && (issuedAt.IsZero() || issuedAt.Before(d.before[at].latest))
}

// anyInForce reports whether one of the denials has not ended at now.
func anyInForce(now time.Time, ends []end) bool {
	return len(ends) > 0 && now.Before(ends[len(ends)-1].until)
}
