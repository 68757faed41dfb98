package ratelimit

import (
	"context"
	"time"
)

// SlotClaim is what a process claims of the requests in flight that a limit allows all processes together. Its figures
// are absolute, so that a claim that is repeated, because its end is not known, changes nothing.
type SlotClaim struct {
	Name  string // of the limit, with its account and subject: Name.String
	Part  int64  // of the process; each counts apart
	Most  int64  // requests in flight that the limit allows
	Held  int64  // how many the part may have in flight from now on, at least; all that it has, if that is more than Most
	InUse int64  // how many of Held it has in flight at present
	Need  int64  // how many it needs in addition: requests wait for them
	Ahead int64  // how many it wants beyond that, if more than Few are left then
	Few   int64
	// Since is the time of the answer to the first claim that lacked some, as long as the same request waits; else zero.
	Since time.Time

	// The answer.
	Granted int64 // how many the part may have in flight; never less than Held
	Others  int64 // how many other processes may have, as long as they live
	Full    bool  // since Since, each of the others has said that it uses all that it has
	At      time.Time
}

// SlotShare is what the store has of one part of a process that lives.
type SlotShare struct {
	Held, InUse int64
	At          time.Time // when the process has claimed it last
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
	// AskedSlots returns up to limit parts of the process of which others need what is not in use. They are asked no more
	// once they have been claimed again.
	AskedSlots(ctx context.Context, process string, limit int) (parts []int64, err error)
	// TrimSlots removes some of what processes have claimed whose time has ended.
	TrimSlots(ctx context.Context) error
}

// Grant sets the answer to the claim, at a time by the clock of the store. others are the shares that count, without that
// of the claim.
func (c *SlotClaim) Grant(others []SlotShare, at time.Time) {
	c.Others, c.Full, c.At = 0, !c.Since.IsZero(), at
	for _, o := range others {
		c.Others += o.Held
		c.Full = c.Full && o.At.After(c.Since) && o.InUse >= o.Held
	}
	room := max(0, c.Most-c.Others-c.Held)
	need := min(c.Need, room)
	c.Granted = c.Held + need + max(0, min(c.Ahead, room-need-c.Few))
}

// Lacks reports whether the answer lacks slots that requests wait for.
func (c *SlotClaim) Lacks() bool { return c.Granted < c.Held+c.Need }

// Left returns how many more the limit allows, beside what all processes may have.
func (c *SlotClaim) Left() int64 { return max(0, c.Most-c.Others-c.Granted) }
