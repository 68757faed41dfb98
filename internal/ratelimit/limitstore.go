package ratelimit

import (
	"context"
	"math/bits"
)

// LimitStore is the store of the buckets that nodes share.
type LimitStore interface {
	// Ask sends questions in one pipeline and sets their answers. It sets Answered of those that were
	// answered; the error says why others were not. What was asked may have been done nevertheless.
	Ask(ctx context.Context, questions []Question) error
	// Check connects to the store, if necessary, and returns why it cannot be used.
	Check(ctx context.Context) error
	// Generation grows when the store may have lost what it knew, such as when another server has
	// taken over, or it was emptied.
	Generation() int64
}

// Question asks the limit store for requests that each need the Amount of every bucket named in Takes,
// or nothing of any. Admitted is how many of them may pass.
type Question struct {
	Requests int64
	Takes    []Take

	Answered bool
	Admitted int64
}

// Take is what a question asks of one bucket: its parameters, and tokens for later use.
type Take struct {
	Name     string
	Amount   int64 // what each request needs, at least 1
	Capacity int64 // requests
	Count    int64 // refill: Count requests in Per microseconds, in lowest terms
	Per      int64
	Version  int64 // the change of the configuration that has these parameters, or a later one
	Force    bool  // Version is the newest of the configuration, whatever the store says

	Number      int64  // number of the question among the node's questions, if the store must recognize it; else 0
	Outstanding int64  // the most tokens that all nodes together may hold unspent
	Left        int64  // tokens that the node still holds; negative to change nothing
	Ahead       int64  // tokens that the node asks for, for later use
	Debt        int64  // requests that the node admitted without the store, and reports now
	Gifts       []Gift // requests that the store has charged, and that are given back now; at most MaxGifts
	DebtNumber  int64  // of the report of both
	Known       int64  // requests that are used at least, as the store once said of the bucket with the birth Birth
	Birth       int64  // if the bucket has another birth now, or if this is AnyBirth, Known holds; 0 if Known is of no bucket

	Granted int64 // of Ahead
	Charged int64 // of Debt; the rest did not fit the bucket
	Used    int64 // requests that are used of the bucket: Used + Part/Per, with all that was granted
	Part    int64

	// Level + LevelPart/Per is what is used and what was ever given back, in requests. It grows also when the
	// bucket is made anew.
	Level, LevelPart int64
	Time             int64 // by the store's clock, in microseconds
	Behind           bool  // the store knows newer parameters; then nothing was done
	Newer            int64 // their Version
	Born             int64 // birth of the bucket, which tells it from one that the store had before it was emptied; 0 for none
}

// AnyBirth is the Birth of a Take whose Known holds for every bucket that the store may have.
const AnyBirth = -1

// Gift is an amount that the store has charged and that is given back, because requests did not reach
// their upstreams. When it charged them, or earlier, its answer had the Level, LevelPart and Time.
type Gift struct{ Amount, Level, Part, Time int64 }

// MaxGifts bounds the gifts of a report.
const MaxGifts = 256

// take returns the question about a bucket with the parameters p, of which each request needs the amount.
func (p *Params) take(name string, amount, version int64) Take {
	const microsecond = 1000
	g := gcd(p.n*microsecond, p.d)
	return Take{
		Name: name, Amount: amount, Capacity: p.capacity, Count: int64(p.n * microsecond / g), Per: int64(p.d / g), Version: version,
		Left: -1,
	}
}

// usedUnits returns the units that are used according to the answer t.
func (p *Params) usedUnits(t *Take) uint64 {
	hi, lo := bits.Mul64(uint64(t.Part), p.cost)
	part, rest := bits.Div64(hi, lo, uint64(t.Per))
	if rest > 0 {
		part++
	}
	return min(uint64(t.Used)*p.cost+part, p.span)
}
