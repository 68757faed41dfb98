package traffic

import "context"

// Part is what a chunk tells the counts of.
type Part uint8

// The parts. Each of the first three has every request once; the fewer it tells
// apart, the less there is to read for a report.
const (
	Gateways Part = iota // by gateway and status, with latencies
	Routes               // by gateway, route and status, with latencies
	Keys                 // by gateway, route, key and status
	Seconds              // what came to the limits, by gateway, route, key and second
)

// Tier is the length of a chunk's interval.
type Tier uint8

// The tiers.
const (
	Minutes Tier = iota
	Hours
	Days
)

// Length returns the seconds of an interval of the tier.
func (t Tier) Length() int64 {
	switch t {
	case Minutes:
		return 60
	case Hours:
		return 3600
	default:
		return 86400
	}
}

// State is how far a chunk has come.
type State uint8

// The states. A chunk that is not Rolled has counts that the next tier does not
// have.
const (
	Fresh  State = iota // one of perhaps many of its interval
	Merged              // those of its interval were merged
	Rolled              // its counts stand in the next tier, too, or there is none for it
)

// Chunk is some counts of one account's requests that began in one interval. There may
// be any number of chunks of one interval: their sum counts.
type Chunk struct {
	Seq       int64 // the store gives it
	AccountID string
	Part      Part
	Tier      Tier
	State     State
	Start     int64 // Unix second at which the interval begins
	// First and Last are the least and the greatest of the identifiers that the
	// entries are sorted by: of Gateways and Seconds the gateway, of Routes the
	// route, of Keys the key.
	First, Last [16]byte
	Body        []byte
}

// Requests returns the number of requests that a chunk counts; 0 of Seconds, and
// of a body that is damaged.
func (c *Chunk) Requests() (n int64) {
	if c.Part == Seconds {
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

// ChunkQuery asks for chunks of one account and part.
type ChunkQuery struct {
	AccountID string
	Part      Part
	Tier      Tier // and of shorter tiers what is not Rolled
	// From and Before are Unix seconds: an interval begins at From or later, and
	// before Before.
	From, Before int64
	// Only, if not nil, leaves out chunks that cannot have the identifier.
	Only *[16]byte
}

// Backlog is chunks of one interval that stand in one state.
type Backlog struct {
	AccountID string
	Part      Part
	Tier      Tier
	State     State
	Start     int64
	Seqs      []int64
}

// Store keeps chunks. What it acknowledges survives a power loss.
type Store interface {
	// AppendTraffic adds chunks, all or none.
	AppendTraffic(ctx context.Context, chunks []Chunk) error
	// ReadTraffic calls f for each chunk that q asks for, the earliest interval
	// first, of one consistent state, until f returns an error, which it
	// returns. f does not keep the chunk.
	ReadTraffic(ctx context.Context, q ChunkQuery, f func(*Chunk) error) error
	Maintenance
}

// Maintenance is the part of a Store that keeps the number of chunks small.
type Maintenance interface {
	// TrafficBacklog returns up to limit sets of chunks of the tier in the
	// state whose interval begins before the Unix second, the earliest first.
	TrafficBacklog(ctx context.Context, t Tier, s State, before int64, limit int) ([]Backlog, error)
	// TrafficChunks calls f for each of the chunks, in order, as ReadTraffic does.
	TrafficChunks(ctx context.Context, seqs []int64, f func(*Chunk) error) error
	// ReplaceTraffic adds chunks and, in the same transaction, removes those of
	// gone and sets the state of those of moved. If one of these is not there,
	// or moved stands in that state already, nothing is done: fault.Conflict.
	ReplaceTraffic(ctx context.Context, gone, moved []int64, to State, added []Chunk) error
	// TrimTraffic removes up to limit chunks that are Rolled and whose interval
	// begins before the Unix second. more tells that there may be others.
	TrimTraffic(ctx context.Context, p Part, t Tier, before int64, limit int) (more bool, err error)
}
