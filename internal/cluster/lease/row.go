package lease

import (
	"encoding/hex"
	"strconv"
	"time"
)

// Kind is what a node asks of the store.
type Kind uint8

// The kinds of calls.
const (
	Join Kind = iota
	Renew
	Acknowledge
	Leave
)

// Call is a call of a node to the store.
type Call struct {
	Kind     Kind
	Node     string // name
	Boot     Boot
	Epoch    int64 // of the lease; not used by Join
	TTL      time.Duration
	Position Position // that is in force on the node
	// Replace is the grant of another process with the same name that a Join replaces, because it has run
	// out. The zero value replaces none.
	Replace Seen

	begun Instant // before the call
}

// Result is the result of a Call.
type Result uint8

// The results of calls.
const (
	// Done means that the row was changed.
	Done Result = iota + 1
	// Behind means that the node must apply more changes first.
	Behind
	// Lost means that the row is not of this lease any more.
	Lost
	// OtherHistory means that the change log does not contain the node's position.
	OtherHistory
	// Occupied means that another process has the node's name.
	Occupied
)

// Answer is the answer of the store to a Call.
type Answer struct {
	Result Result
	Row    Row // if the result is Done, the row after the call; if it is Occupied, the row that is in the way
	// Newest is the newest change when a Join was done. It must be in force on the node before the lease is
	// used, because whoever waits for a later change also waits for the node.
	Newest Position
	// Time is the time by the store's clock at some moment of the call, or the zero time if the store did not return
	// it.
	Time time.Time
}

// State is the state of a Row.
type State string

// The states of rows.
const (
	Live    State = "live"
	Expired State = "expired" // ended by a waiter
	Stopped State = "stopped" // given back
)

// Row is what the store keeps about a node.
type Row struct {
	Node    string
	Boot    Boot
	Epoch   int64 // rises when a lease begins and when it ends
	Grant   int64 // rises with each renewal
	TTL     time.Duration
	Applied Position
	State   State
}

// Claimant returns the name under which a node claims records of the store for itself while it holds the
// lease of r. No other lease has it: its parts are the boot in hexadecimal digits, and the epoch.
func (r *Row) Claimant() string {
	return hex.EncodeToString(r.Boot[:]) + "." + strconv.FormatInt(r.Epoch, 10)
}

// Seen names one grant of a row.
type Seen struct {
	Node         string
	Epoch, Grant int64
}

// Seen returns the newest grant of r.
func (r *Row) Seen() Seen { return Seen{Node: r.Node, Epoch: r.Epoch, Grant: r.Grant} }

// Log is what the change log says about the position of a call.
type Log struct {
	// Known is set if the log contains the position.
	Known bool
	// Newest is the newest change; only a Join needs it. It stays the newest until the row is stored,
	// because the store locks mutations out before it reads the log.
	Newest Position
	// Overdue is set if the change after the node's position is older than a third of the TTL, by
	// the store's clock.
	Overdue bool
}

// Carry returns r as it is after a call, and the answer. r is nil if the store has no row with the
// node's name. If the result is not Done, nothing is to be stored.
func Carry(r *Row, c *Call, log Log) (Row, Answer) {
	switch c.Kind {
	case Join:
		return join(r, c, log)
	case Renew:
		return renew(r, c, log)
	case Acknowledge:
		return acknowledge(r, c, log)
	default:
		return leave(r, c)
	}
}

func join(r *Row, c *Call, log Log) (Row, Answer) {
	switch {
	case !log.Known:
		return Row{}, Answer{Result: OtherHistory}
	case log.Overdue:
		return Row{}, Answer{Result: Behind}
	case r == nil:
		r = &Row{Node: c.Node}
	case r.State == Live && r.Boot != c.Boot && r.Seen() != c.Replace:
		return Row{}, Answer{Result: Occupied, Row: *r}
	}
	next, a := done(Row{Node: c.Node, Boot: c.Boot, Epoch: r.Epoch + 1, Grant: r.Grant + 1, TTL: c.TTL, Applied: c.Position, State: Live})
	a.Newest = log.Newest
	return next, a
}

// of reports whether the row is of the lease of a call.
func (r *Row) of(c *Call) bool {
	return r != nil && r.State == Live && r.Boot == c.Boot && r.Epoch == c.Epoch
}

func renew(r *Row, c *Call, log Log) (Row, Answer) {
	switch {
	case !r.of(c):
		return Row{}, Answer{Result: Lost}
	case !log.Known:
		return Row{}, Answer{Result: OtherHistory}
	case log.Overdue:
		return Row{}, Answer{Result: Behind}
	}
	next := *r
	next.Grant++
	next.apply(c.Position)
	return done(next)
}

func acknowledge(r *Row, c *Call, log Log) (Row, Answer) {
	switch {
	case !r.of(c):
		return Row{}, Answer{Result: Lost}
	case !log.Known:
		return Row{}, Answer{Result: OtherHistory}
	}
	next := *r
	next.apply(c.Position)
	return done(next)
}

func leave(r *Row, c *Call) (Row, Answer) {
	if !r.of(c) {
		return Row{}, Answer{Result: Lost}
	}
	next := *r
	next.Epoch++
	next.State = Stopped
	return done(next)
}

func done(r Row) (Row, Answer) { return r, Answer{Result: Done, Row: r} }

// apply notes that p is in force. A late message notes nothing.
func (r *Row) apply(p Position) {
	if p.Number > r.Applied.Number {
		r.Applied = p
	}
}

// End returns r with its lease ended, for a waiter that found the grant run out. If the row has
// another grant by now, it returns false, and nothing is to be stored.
func (r *Row) End(s Seen) (Row, bool) {
	if r.State != Live || r.Seen() != s {
		return Row{}, false
	}
	next := *r
	next.Epoch++
	next.State = Expired
	return next, true
}
