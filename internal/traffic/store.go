package traffic

import (
	"cmp"
	"context"

	"github.com/keygate/keygate/internal/accesslog"
)

// Part is what the counts of a chunk are grouped by.
type Part uint8

// The parts. Each of the first three and Targets count every request once, and Subjects those with a valid token. A report
// reads the part that has the fewest groups and is sufficient.
const (
	Gateways Part = iota // by gateway and status, with latencies
	Routes               // by gateway, route and status, with latencies
	Keys                 // by gateway, route, key and status
	Seconds              // requests that reached the limits, by gateway, route, key and second
	Methods              // requests by gateway, route and method, in the form of Seconds: see MethodID
	Usage                // what counts for usage records (package usage), in tier Open alone
	Targets              // by gateway, Destination and status, with latencies, in tiers of its own
	Subjects             // by gateway, Destination (see OfToken) and status, in tiers of its own
)

// In returns the tier in which the chunks of p are that have the intervals of t: Minutes, Hours or Days.
func (p Part) In(t Tier) Tier {
	switch p {
	case Targets:
		return t + TargetMinutes
	case Subjects:
		return t + SubjectMinutes
	default:
		return t
	}
}

// hasDestinations reports whether the counts of p are grouped by a Destination.
func (p Part) hasDestinations() bool { return p == Targets || p == Subjects }

// hasLatencies reports whether p has latencies beside its counts.
func (p Part) hasLatencies() bool { return p != Keys && p != Subjects }

// MethodID returns the identifier that stands for a method, instead of a key, in part Methods. Methods without a name
// of their own in package accesslog are counted together.
func MethodID(m accesslog.Method) (id [16]byte) {
	name := cmp.Or(m.String(), "other")
	copy(id[:], name)
	return id
}

// Tier is the length of a chunk's interval: a minute, an hour or a day.
type Tier uint8

// The tiers.
const (
	Minutes Tier = iota
	Hours
	Days
	Open // an hour of part Usage, until it makes usage records
	// The tiers of part Targets are not those of the other parts, so that an earlier version, which merges whatever it
	// finds in its tiers, does not find chunks that it cannot read. The same is true of those of part Subjects.
	TargetMinutes
	TargetHours
	TargetDays
	SubjectMinutes
	SubjectHours
	SubjectDays
)

// Shortest returns the tier from which chunks move up to t.
func (t Tier) Shortest() Tier {
	switch {
	case t >= SubjectMinutes:
		return SubjectMinutes
	case t >= TargetMinutes:
		return TargetMinutes
	case t == Open:
		return Open
	default:
		return Minutes
	}
}

// Length returns the length of the tier's interval in seconds.
func (t Tier) Length() int64 {
	switch t {
	case Minutes, TargetMinutes, SubjectMinutes:
		return 60
	case Hours, TargetHours, SubjectHours, Open:
		return 3600
	default:
		return 86400
	}
}

// State is the progress of a chunk towards longer tiers.
type State uint8

// The states. The counts of a chunk that is not Rolled are not in the next tier yet.
const (
	Fresh  State = iota // there may be many of its interval
	Merged              // the chunks of its interval were merged
	Rolled              // its counts are also in the next tier, or there is no next tier
)

// Chunk has counts of one account's requests that began in one interval. There may be any
// number of chunks of one interval; their counts add up.
type Chunk struct {
	Seq       int64 // set by the store
	AccountID string
	Part      Part
	Tier      Tier
	State     State
	Start     int64 // Unix second of the start of the interval
	// First and Last are the least and the greatest identifier that the entries are
	// sorted by: the gateway in Gateways, Seconds, Methods, Targets and Subjects, the route in Routes, the key in
	// Keys.
	First, Last [16]byte
	Body        []byte
}

// Requests returns the number of requests that a chunk counts. It is 0 for parts Seconds, Methods and Usage, and
// for a damaged body.
func (c *Chunk) Requests() (n int64) {
	if c.Part >= Seconds && !c.Part.hasDestinations() {
		return 0
	}
	if err := rows(c.Part, c.Body, func(e *row) error {
		n += e.Requests
		return nil
	}); err != nil {
		return 0
	}
	return n
}

// ChunkQuery selects chunks of one account and part.
type ChunkQuery struct {
	AccountID string
	Part      Part
	Tier      Tier // and chunks of shorter tiers that are not Rolled
	// From and Before are Unix seconds. They select intervals that start at From or
	// later, and before Before.
	From, Before int64
	// Only, if not nil, excludes chunks that cannot have the identifier by their
	// First and Last.
	Only *[16]byte
}

// Backlog is the chunks of one interval in one state.
type Backlog struct {
	AccountID string
	Part      Part
	Tier      Tier
	State     State
	Start     int64
	Seqs      []int64
}

// Store stores chunks. Acknowledged chunks survive a power loss.
type Store interface {
	// AppendTraffic adds the chunks of a batch, all or none. If the store already has the batch, or
	// a later batch of the same writer, nothing changes.
	AppendTraffic(ctx context.Context, batch accesslog.BatchID, chunks []Chunk) error
	// ReadTraffic calls f for each chunk that q selects, the earliest interval first,
	// in one transaction. If f returns an error, ReadTraffic returns it at once. f must
	// not keep the chunk.
	ReadTraffic(ctx context.Context, q ChunkQuery, f func(*Chunk) error) error
	Maintenance
}

// Maintenance is the part of Store that keeps the number of chunks small.
type Maintenance interface {
	// TrafficBacklog returns up to limit sets of chunks of the tier and state whose
	// interval starts before the Unix second, the earliest first.
	TrafficBacklog(ctx context.Context, t Tier, s State, before int64, limit int) ([]Backlog, error)
	// TrafficChunks calls f for each of the chunks, in order, as ReadTraffic does.
	TrafficChunks(ctx context.Context, seqs []int64, f func(*Chunk) error) error
	// ReplaceTraffic adds chunks and, in the same transaction, removes the chunks in gone and sets
	// the state of the chunks in moved. If one of them does not exist, or already has the state to
	// or a later state, because another node has merged it or added it to the next tier, it changes
	// nothing and returns fault.Conflict.
	ReplaceTraffic(ctx context.Context, gone, moved []int64, to State, added []Chunk) error
	// TrimTraffic removes up to limit Rolled chunks whose interval starts before the Unix second.
	// more says that there may be others.
	TrimTraffic(ctx context.Context, p Part, t Tier, before int64, limit int) (more bool, err error)
}
