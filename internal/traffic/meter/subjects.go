package meter

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/traffic"
)

// bearer is what the counts by subject are grouped by. Its identity has no route and no key.
type bearer struct {
	identity
	token accesslog.Token
}

// bySubject is the counts of the requests of a bearer.
type bySubject struct {
	bearer
	traffic.Counts
	id      [16]byte // of traffic.OfToken
	amounts traffic.Amounts
}

// bySubject counts a request of a cell for the subject of its token, and returns the counts.
func (w *window) bySubject(c *cell, e *accesslog.Entry) *bySubject {
	k := bearer{identity{account: c.account, gateway: c.gateway, minute: c.minute, status: c.status}, *e.Token}
	s := w.subjects[k]
	if s == nil {
		s = w.newSubject(k)
	}
	r := &e.Record
	s.Requests++
	s.BytesIn += max(r.BytesIn, 0)
	s.BytesOut += max(r.BytesOut, 0)
	if failedUpstream(r) {
		s.UpstreamErrors++
	}
	return s
}

// newSubject adds a bearer that is not known. Beyond the bounds, it is that of OtherDestination.
func (w *window) newSubject(k bearer) *bySubject {
	told := w.subjectsOf[k.account]
	if told == nil {
		told = new(traffic.Destinations)
		w.subjectsOf[k.account] = told
	}
	to := traffic.OfToken(&k.token)
	if !w.subjectShares.MayTake(k.account, 1) {
		to = traffic.Destination{Upstream: traffic.OtherDestination, Target: traffic.OtherDestination}
	}
	to, id := told.Of(to)
	k.token = to.Token()
	if known := w.subjects[k]; known != nil {
		return known
	}
	w.subjectShares.Take(k.account, 1)
	s := &bySubject{bearer: k, id: id}
	w.subjects[k] = s
	return s
}

// resetSubjects removes all counts by subject.
func (w *window) resetSubjects() {
	clear(w.subjects)
	if len(w.subjectsOf) > keptTables {
		clear(w.subjectsOf)
	}
	for _, t := range w.subjectsOf {
		t.Reset()
	}
	w.subjectShares.Reset()
}

// sortedSubjects returns the counts by subject, in the order of accounts and minutes, and then of part Subjects.
func (w *window) sortedSubjects() []*bySubject {
	sorted := make([]*bySubject, 0, len(w.subjects))
	for _, s := range w.subjects {
		sorted = append(sorted, s)
	}
	slices.SortFunc(sorted, func(a, b *bySubject) int {
		return cmp.Or(a.compareInterval(&b.identity), bytes.Compare(a.gateway[:], b.gateway[:]), bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.status, b.status))
	})
	return sorted
}

// subjectChunks encodes counts by subject.
func subjectChunks(c traffic.Chunk, sorted []*bySubject) []traffic.Chunk {
	c.Part, c.Tier = traffic.Subjects, traffic.Subjects.In(c.Tier)
	to := traffic.NewWriter(c)
	for _, s := range sorted {
		of := s.entry()
		of.Destination = s.id
		to.Entry(&traffic.Entry{Identity: of, Counts: s.Counts, To: traffic.OfToken(&s.token), Amounts: s.amounts})
	}
	return to.Chunks()
}
