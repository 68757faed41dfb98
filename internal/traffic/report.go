package traffic

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// ChunkReader is the part of Store that a report needs.
type ChunkReader interface {
	ReadTraffic(ctx context.Context, q ChunkQuery, f func(*Chunk) error) error
}

// Report returns the report of an account for q from the stored counts: rows ordered by
// time, then by group, with zeros for intervals without requests. The error for an invalid
// query is fault.ValidationFailed with the field since or interval.
func Report(ctx context.Context, store ChunkReader, accountID string, q Query, now time.Time) ([]Row, error) {
	p, err := newQuery(accountID, q, now)
	if err != nil {
		return nil, err
	}
	r := &report{query: p, groups: map[group][]Row{}}
	r.known()
	if !p.nothing {
		if err := store.ReadTraffic(ctx, p.chunks, r.add); err != nil {
			return nil, err
		}
		r.close()
	}
	return r.rows(), nil
}

// group is a group of a report: an identifier, a status, a text of Destination, or none of them.
type group struct {
	id     [16]byte
	status uint16
	text   uint32 // its index in query.texts, plus one
}

// report builds a report. Chunks are ordered by time, so latencies are held only for the
// sums of one interval.
type report struct {
	*query
	groups map[group][]Row // a row for each interval
	at     int             // index of the interval of sums
	sums   map[group]*sum
	spare  []*sum
	told   amounts
}

// amounts tells the meters of a report apart, and bounds the amounts of its rows.
type amounts struct {
	Meters
	n int
}

// maxAmounts is the maximum number of amounts of a report: some 20 MB.
const maxAmounts = 500_000

// add adds amounts to those of a row.
func (t *amounts) add(to *Amounts, more Amounts) error {
	for _, a := range more {
		if to.Add(t.Of(a.Meter), a.Units) {
			t.n++
		}
	}
	if t.n > maxAmounts {
		return fault.Invalid("since", "the report would have more than %d figures of meters: set a later since, a longer interval or a filter", maxAmounts)
	}
	return nil
}

// sum builds one row.
type sum struct {
	Row
	latency, upstream Sketch
}

// known creates the groups that the report has even without requests.
func (r *report) known() {
	r.sums = map[group]*sum{}
	switch {
	case r.Group == Together:
		r.groups[group{}] = make([]Row, r.intervals)
	case r.nothing:
	case r.Group == ByGateway && r.GatewayID != "", r.Group == ByRoute && r.RouteID != "", r.Group == ByKey && r.KeyID != "",
		r.Group == ByUpstream && r.Upstream != "", r.Group == ByTarget && r.Target != "":
		r.groups[r.group(&row{Identity: r.filter, to: &Destination{Upstream: r.Upstream, Target: r.Target}})] = make([]Row, r.intervals)
	}
}

// add adds the entries of a chunk.
func (r *report) add(c *Chunk) error {
	if at := int((floor(c.Start, r.length) - r.chunks.From) / r.length); at != r.at {
		r.close()
		r.at = at
	}
	err := rows(c.Part, c.Body, func(e *row) error {
		if !r.passes(e) {
			return nil
		}
		s, err := r.sum(r.group(e))
		if err != nil {
			return err
		}
		s.add(e.Status, &e.Counts)
		if err := r.told.add(&s.Meters, e.Amounts); err != nil {
			return err
		}
		if !r.latencies {
			return nil
		}
		if err := s.latency.MergeBytes(e.latency); err != nil {
			return err
		}
		return s.upstream.MergeBytes(e.upstream)
	})
	if err != nil {
		return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
	}
	return nil
}

// sum returns the sum of a group in the current interval, and creates it if needed.
func (r *report) sum(g group) (*sum, error) {
	if s := r.sums[g]; s != nil {
		return s, nil
	}
	if r.groups[g] == nil {
		if (len(r.groups)+1)*r.intervals > maxRows {
			return nil, tooMany()
		}
		r.groups[g] = make([]Row, r.intervals)
	}
	s := new(sum)
	if last := len(r.spare) - 1; last >= 0 {
		s, r.spare = r.spare[last], r.spare[:last]
	}
	r.sums[g] = s
	return s, nil
}

// close turns the sums of the current interval into rows.
func (r *report) close() {
	for g, s := range r.sums {
		if r.latencies {
			s.Latency, s.Upstream = s.latency.Quantiles(), s.upstream.Quantiles()
		}
		s.Meters.sort()
		r.groups[g][r.at] = s.Row
		s.Row = Row{}
		s.latency.Reset()
		s.upstream.Reset()
		r.spare = append(r.spare, s)
	}
	clear(r.sums)
}

// add adds the counts of requests whose response had the given status.
func (r *Row) add(status uint16, c *Counts) {
	r.Requests += c.Requests
	if class := status/100 - 2; class < 4 { // below 200 it wraps around to a large number
		r.Status[class] += c.Requests
	}
	switch status {
	case 429:
		r.Limited += c.Requests
	case 401:
		r.Unauthorized += c.Requests
	case 403:
		r.Forbidden += c.Requests
	}
	r.UpstreamErrors += c.UpstreamErrors
	r.BytesIn += c.BytesIn
	r.BytesOut += c.BytesOut
}

// rows returns the rows of the report.
func (r *report) rows() []Row {
	sorted := make([]group, 0, len(r.groups))
	for g := range r.groups {
		sorted = append(sorted, g)
	}
	slices.SortFunc(sorted, r.compare)
	names, issuers := make([]string, len(sorted)), make([]string, len(sorted))
	for i := range sorted {
		names[i], issuers[i] = r.name(sorted[i])
	}
	out := make([]Row, 0, len(sorted)*r.intervals)
	for at := range r.intervals {
		start := time.Unix(r.chunks.From+int64(at)*r.length, 0).UTC()
		for i, g := range sorted {
			row := r.groups[g][at]
			row.Start, row.Group, row.IssuerID = start, names[i], issuers[i]
			out = append(out, row)
		}
	}
	return out
}

// name returns the text of a group, and the issuer of a subject.
func (r *report) name(g group) (name, issuerID string) {
	kind := id.Gateway
	switch r.Group {
	case Together:
		return "", ""
	case ByStatus:
		return strconv.Itoa(int(g.status)), ""
	case ByUpstream, ByTarget, BySide:
		return r.text(g), ""
	case BySubject:
		subject := r.text(g) // which may have any character but in the issuer's identifier
		n := strings.LastIndexByte(subject, 0)
		return subject[:n], subject[n+1:]
	case ByRoute:
		kind = id.Route
	case ByKey:
		kind = id.Key
	}
	if g.id == ([16]byte{}) {
		return "", ""
	}
	return id.Format(kind, g.id), ""
}
