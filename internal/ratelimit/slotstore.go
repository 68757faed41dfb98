package ratelimit

import (
	"context"
	"time"
)

// SlotClaim is what a process claims of the requests in flight that a limit allows all processes together. Its figures
// are absolute. So a claim can be repeated when its outcome is unknown: the repetition changes nothing.
type SlotClaim struct {
	Name  string // of the limit, with its account and subject: Name.String
	Part  int64  // of the process; each counts apart
	Most  int64  // requests in flight that the limit allows
	Held  int64  // how many the part may have in flight from now on, at least; all that it has, if that is more than Most
	Need  int64  // how many it needs in addition: requests wait for them
	Ahead int64  // how many it wants beyond that, if more than Few are left then
	Few   int64
	// FullSince and Seen are times by the store's clock between which the part had all of Held in flight. FullSince is zero if it
	// has not.
	FullSince, Seen time.Time

	// The answer.
	Granted int64 // how many the part may have in flight; never less than Held
	Others  int64 // how many other processes may have, as long as they live
	// FullAt is the last moment of which it is known that the limit was used to the full. It is zero if none is.
	FullAt time.Time
	At     time.Time // of the answer
}

// SlotShare is what the store has of one part of a process.
type SlotShare struct {
	Held            int64
	FullSince, Seen time.Time // of its last claim; FullSince is zero if more was granted then
}

// SlotStore stores how many requests in flight each process may have. A node is a process here: it has a name that no other
// process ever had.
type SlotStore interface {
	// ClaimSlots writes what the process claims, all of it or nothing, and sets the answers. An error may come after it
	// was written. No other claim to the same names comes in between. At most one claim of a call is of a part.
	//
	// What a process has claimed counts until two seconds after the lease of its node has ended. The first claim of
	// another process after that removes it: even if the process gets a lease again, it has nothing then.
	//
	// If less than Need was granted, the other processes are asked to give back what they do not use.
	ClaimSlots(ctx context.Context, process string, claims []SlotClaim) error
	// AskedSlots returns up to limit parts of the process of which others need what is not in use, and the time by the
	// store's clock. They are asked no more once they have been claimed again.
	AskedSlots(ctx context.Context, process string, limit int) (parts []int64, at time.Time, err error)
	// TrimSlots removes some of what processes have claimed whose time has ended.
	TrimSlots(ctx context.Context) error
}

// Grant sets the answer to the claim, at a time by the clock of the store. others are the shares that count, without that
// of the claim.
func (c *SlotClaim) Grant(others []SlotShare, at time.Time) {
	c.Others, c.At = 0, at
	full := fullTime{to: at}
	for _, o := range others {
		c.Others += o.Held
		full.with(&o)
	}
	full.with(&SlotShare{c.Held, c.FullSince, c.Seen})
	room := max(0, c.Most-c.Others-c.Held)
	if c.FullAt = full.to; room > 0 || full.never || full.from.After(full.to) {
		c.FullAt = time.Time{}
	}
	need := min(c.Need, room)
	c.Granted = c.Held + need + max(0, min(c.Ahead, room-need-c.Few))
}

// fullTime is the time in which some parts used all that they have.
type fullTime struct {
	from, to time.Time
	never    bool
}

func (f *fullTime) with(s *SlotShare) {
	if s.Held == 0 {
		return
	}
	f.never = f.never || s.FullSince.IsZero()
	if s.FullSince.After(f.from) {
		f.from = s.FullSince
	}
	if s.Seen.Before(f.to) {
		f.to = s.Seen
	}
}

// Share returns what the store has of the part after the answer.
func (c *SlotClaim) Share() SlotShare {
	s := SlotShare{Held: c.Granted, Seen: c.Seen}
	if c.Granted == c.Held {
		s.FullSince = c.FullSince
	}
	return s
}

// Lacks reports whether the answer lacks slots that requests wait for.
func (c *SlotClaim) Lacks() bool { return c.Granted < c.Held+c.Need }

// Left returns how many more the limit allows, beside what all processes may have.
func (c *SlotClaim) Left() int64 { return max(0, c.Most-c.Others-c.Granted) }
