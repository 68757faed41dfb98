package ratelimit

import (
	"context"
	"math/bits"
)

// LimitStore is the store of the buckets that nodes share.
type LimitStore interface {
	// Ask sends questions in one pipeline and sets their answers. It sets Answered where an answer
	// came; the error says why others were not answered. The store may have carried out unanswered
	// questions too.
	Ask(ctx context.Context, questions []Question) error
	// Check connects to the store, if necessary, and returns why it cannot be used.
	Check(ctx context.Context) error
	// Generation grows when the store may have lost what it knew, for example when another server
	// has taken over, or when it was emptied.
	Generation() int64
}

// Question asks the limit store for a number of requests. Each of them is charged the Amount of every
// bucket in Takes, or nothing at all. Admitted is how many of them may pass.
type Question struct {
	Requests int64
	Takes    []Take

	Answered bool
	Admitted int64
}

// Take is the part of a question about one bucket: its parameters, and tokens for later use.
type Take struct {
	Name     string
	Amount   int64 // what each request needs, at least 1
	Capacity int64 // requests
	Count    int64 // refill: Count requests in Per microseconds, in lowest terms
	Per      int64
	Version  int64 // number of the change of the configuration with these parameters, or of a later change
	Force    bool  // Version is the newest version of the configuration, whatever the store says

	Number      int64  // number of the question among the node's questions, if the store must recognize it; else 0
	Outstanding int64  // the most tokens that all nodes together may hold unspent
	Left        int64  // tokens that the node still holds; negative to change nothing
	Ahead       int64  // tokens that the node asks for, for later use
	Debt        int64  // requests that the node admitted without the store, and reports now
	Gifts       []Gift // requests that the store has charged, and that are given back now; at most MaxGifts
	DebtNumber  int64  // of the report of both
	Known       int64  // least number of used requests, as the store once said about the bucket with the birth Birth
	Birth       int64  // if the bucket has another birth now, or if this is AnyBirth, Known holds; 0 if Known is of no bucket

	Granted int64 // of Ahead
	Charged int64 // of Debt; the rest did not fit the bucket
	Used    int64 // used requests of the bucket: Used + Part/Per, including all granted tokens
	Part    int64

	// Level + LevelPart/Per is the sum of what is used and what was ever given back, in requests. It also
	// grows when the bucket is created again.
	Level, LevelPart int64
	Time             int64 // by the store's clock, in microseconds
	Behind           bool  // the store knows newer parameters; then nothing was done
	Newer            int64 // their Version
	Born             int64 // birth of the bucket, which distinguishes it from a bucket that the store had before it was emptied; 0 for none
}

// AnyBirth is the Birth of a Take whose Known holds for every bucket that the store may have.
const AnyBirth = -1

// Gift is an amount that the store has charged and that is given back, because requests did not reach
// their upstreams. Level, LevelPart and Time are from the answer by which it charged them, or from an
// earlier answer.
type Gift struct{ Amount, Level, Part, Time int64 }

// MaxGifts bounds the gifts of a report.
const MaxGifts = 256

// The bounds of Take.Count and Take.Per, within which the arithmetic of the limit store is exact.
const (
	maxTakeCount = 1<<39 - 1
	maxTakePer   = 1<<37 - 1
)

// take returns the question about a bucket with the parameters p, which each request is charged the amount of.
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
