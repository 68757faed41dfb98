package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

const (
	exportsOfAccount = 2
	exportsInAll     = 8
	// secondExports is the number of running exports from which on an account with an export gets no second one.
	secondExports = exportsInAll / 2
	// exportWait is how long a caller is told to wait for an export to end.
	exportWait = 10 * time.Second
	// slowRate is the number of bytes a second that a client must read to keep its slot, and
	// slowAfter how far it may fall behind that.
	slowRate  = 256 << 10
	slowAfter = 10 * time.Second
)

// errSlotLost is the error of an export that lost its slot.
var errSlotLost = errors.New("its client read slowly, and another account waited for its slot")

// exports bounds the exports that run at the same time, and their share of the processor. While
// half of the slots are taken, an account gets no second one. While all are taken, an account
// without a slot gets the slot of the slowest client, if that client is behind by slowAfter.
type exports struct {
	now func() time.Time

	mu    sync.Mutex
	slots []*exportSlot // of the exports that run

	// turns has a token for each export that reads and encodes at a moment: half of the
	// cores, at least one. An export that waits for its client has none.
	turns chan struct{}
}

// exportSlot is the slot of an export that runs. exports.mu guards its fields.
type exportSlot struct {
	exports *exports
	account string
	conn    *http.ResponseController
	behind  time.Duration // of its client against slowRate, apart from the piece that it is reading
	reading time.Time     // when that piece began, or zero
	lost    bool
}

func newExports(now func() time.Time) *exports {
	return &exports{now: now, turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// enter takes a slot for an export of the caller's account. If there is none, the error is a 429.
func (e *exports) enter(c *call) (*exportSlot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &exportSlot{exports: e, account: c.actor.Account.ID, conn: c.conn}
	own := 0
	for _, other := range e.slots {
		if other.account == p.account {
			own++
		}
	}
	switch {
	case own >= exportsOfAccount:
		return nil, noSlot(c, exportsOfAccount, fmt.Sprintf("%d exports of this account are running, and that is the maximum", exportsOfAccount))
	case own > 0 && len(e.slots) >= secondExports:
		return nil, noSlot(c, 1, fmt.Sprintf("an export of this account is running; a second one can run only while fewer than %d of all accounts do", secondExports))
	case len(e.slots) >= exportsInAll && !e.displace():
		return nil, noSlot(c, exportsInAll, fmt.Sprintf("%d exports of all accounts are running, and that is the maximum", exportsInAll))
	}
	e.slots = append(e.slots, p)
	return p, nil
}

// displace breaks off the export whose client is furthest behind, if it is behind by at least
// slowAfter. The caller holds e.mu.
func (e *exports) displace() bool {
	now, slowest, behind := e.now(), -1, slowAfter
	for i, p := range e.slots {
		by := p.behind
		if !p.reading.IsZero() {
			by += now.Sub(p.reading)
		}
		if by >= behind {
			slowest, behind = i, by
		}
	}
	if slowest < 0 {
		return false
	}
	p := e.slots[slowest]
	p.lost = true
	_ = p.conn.SetWriteDeadline(time.Unix(1, 0)) // ends a write that is blocked
	e.slots = slices.Delete(e.slots, slowest, slowest+1)
	return true
}

// leave gives a slot back, unless it was lost.
func (e *exports) leave(p *exportSlot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slots = slices.DeleteFunc(e.slots, func(other *exportSlot) bool { return other == p })
}

// begin begins to send a piece, which the client must read within stall. The error is
// errSlotLost if another account has the slot.
func (p *exportSlot) begin(stall time.Duration) error {
	p.exports.mu.Lock()
	defer p.exports.mu.Unlock()
	if p.lost {
		return errSlotLost
	}
	p.reading = p.exports.now()
	_ = p.conn.SetWriteDeadline(time.Now().Add(stall))
	return nil
}

// done ends a piece of n bytes. The error is errSlotLost if another account has the slot.
func (p *exportSlot) done(n int) error {
	p.exports.mu.Lock()
	defer p.exports.mu.Unlock()
	due := time.Duration(n) * time.Second / slowRate
	p.behind = max(0, p.behind+p.exports.now().Sub(p.reading)-due)
	p.reading = time.Time{}
	if p.lost {
		return errSlotLost
	}
	return nil
}

// noSlot is the 429 of an export of which there are most already.
func noSlot(c *call, most int64, why string) error {
	resetAt := c.now.Add(exportWait + time.Second - 1).Unix()
	limit := &fault.Limit{Limit: most, ResetAt: resetAt, Scope: ratelimit.AccountScope.String()}
	c.setRefusalHeaders(limit, int64(exportWait/time.Second))
	return &fault.Error{Code: fault.RateLimitExceeded, Message: why + ": retry when one has ended", Limit: limit}
}
