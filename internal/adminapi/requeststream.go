package adminapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/requestlog"
)

// eventType is the media type of server-sent events.
const eventType = "text/event-stream"

// The bounds of streams of requests.
const (
	tailsOfAccount = 8
	tailsInAll     = 64
	// heartbeat is how often a stream without requests sends a comment, so that proxies between it
	// and its client do not take it for dead.
	heartbeat = 15 * time.Second
)

// tailSlots bounds the streams that run at the same time. Accounts share the slots: if all are taken, an
// account gets a slot of another account that has at least two slots more.
type tailSlots struct {
	mu      sync.Mutex
	open    []*tailSlot    // the oldest first
	of      map[string]int // how many, by account
	closing chan struct{}  // closed when the server shuts down
	closed  bool
}

// tailSlot is the slot of a stream.
type tailSlot struct {
	account string
	lost    chan struct{} // closed when another account has it
}

func newTailSlots() *tailSlots {
	return &tailSlots{of: map[string]int{}, closing: make(chan struct{})}
}

// enter takes a slot for a stream of the caller's account. If there is none, the error is a 429.
func (p *tailSlots) enter(c *call) (*tailSlot, error) {
	account := c.actor.Account.ID
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[account] >= tailsOfAccount {
		return nil, noSlot(c, tailsOfAccount, fmt.Sprintf("%d streams of this account are running, and that is the maximum", tailsOfAccount))
	}
	if len(p.open) >= tailsInAll {
		other := p.newestOfMost()
		if p.of[other.account] < p.of[account]+2 {
			return nil, noSlot(c, tailsInAll, fmt.Sprintf("%d streams of all accounts are running, and that is the maximum", tailsInAll))
		}
		p.remove(other)
		close(other.lost)
	}
	slot := &tailSlot{account: account, lost: make(chan struct{})}
	p.open = append(p.open, slot)
	p.of[account]++
	return slot, nil
}

// newestOfMost returns the newest slot of an account with the most slots. p.mu is held.
func (p *tailSlots) newestOfMost() (found *tailSlot) {
	for _, slot := range p.open {
		if found == nil || p.of[slot.account] >= p.of[found.account] {
			found = slot
		}
	}
	return found
}

// leave gives a slot back, unless another account has it.
func (p *tailSlots) leave(slot *tailSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(slot)
}

func (p *tailSlots) remove(slot *tailSlot) {
	i := slices.Index(p.open, slot)
	if i < 0 {
		return
	}
	p.open = slices.Delete(p.open, i, i+1)
	if p.of[slot.account]--; p.of[slot.account] == 0 {
		delete(p.of, slot.account)
	}
}

// EndStreams ends the running streams, and the calls that wait until a target is drained, because a shutdown would wait for them.
// Later ones end at once.
func (a *API) EndStreams() {
	a.stop()
	a.tails.mu.Lock()
	defer a.tails.mu.Unlock()
	if !a.tails.closed {
		a.tails.closed = true
		close(a.tails.closing)
	}
}

// streamFilters returns the filters of the list without times.
func streamFilters() []queryParam {
	return slices.DeleteFunc(requestFilters(), func(p queryParam) bool { return p.name == "since" || p.name == "until" })
}

func (a *API) streamRequests(c *call) (response, error) {
	if c.invalid != nil {
		return response{}, nil
	}
	slot, err := a.tails.enter(c)
	if err != nil {
		return response{}, err
	}
	status, _ := strconv.Atoi(c.query.Get("status")) // checked by requestFilters; 0 if not given
	tail, err := a.cfg.Control.FollowRequests(&c.actor, requestlog.Filter{
		GatewayID: c.query.Get("gateway_id"), RouteID: c.query.Get("route_id"), KeyID: c.query.Get("key_id"), Status: status, Result: c.query.Get("result"),
	})
	if err != nil {
		a.tails.leave(slot)
		return response{}, err
	}
	// A stream that waits holds no slot among the calls of the account.
	if c.held.call != nil {
		c.held.call()
		c.held.call = nil
	}
	res := response{status: http.StatusOK, stream: &stream{
		write: func(emit func([]byte) error) error { return a.follow(c, tail, slot, emit) },
		live:  true,
		end: func() {
			tail.Close()
			a.tails.leave(slot)
		},
	}}
	return res.with("Content-Type", eventType).with("X-Accel-Buffering", "no"), nil
}

// follow sends what arrives until the client leaves, the key or session of the call ends, another account gets its
// slot, or the server shuts down. The last three end the response regularly.
func (a *API) follow(c *call, tail *control.RequestTail, slot *tailSlot, emit func([]byte) error) error {
	check := time.NewTicker(recheckEvery)
	defer check.Stop()
	quiet := 0 // checks since the last piece
	if err := emit([]byte(": the requests that are refused or fail from now on\n\n")); err != nil {
		return err
	}
	for {
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-a.tails.closing:
			return nil
		case <-slot.lost:
			return emit([]byte(": another account needs this place: too many streams are running\n\n"))
		case <-check.C:
			if c.recheck(a.cfg.Now()) != nil {
				return nil
			}
			if quiet++; time.Duration(quiet)*recheckEvery < heartbeat {
				continue
			}
			quiet = 0
			if err := emit([]byte(": still here\n\n")); err != nil {
				return err
			}
		case <-tail.Ready():
			quiet = 0
			if err := emitEvents(c.ctx, tail, emit); err != nil {
				return err
			}
		}
	}
}

// maxPiece is how many bytes of events are collected before they are sent, plus one event.
const maxPiece = 64 << 10

// emitEvents emits what has arrived as server-sent events.
func emitEvents(ctx context.Context, tail *control.RequestTail, emit func([]byte) error) error {
	list, skipped, err := tail.Take(ctx)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if skipped > 0 {
		fmt.Fprintf(&out, "event: skipped\ndata: {\"count\":%d}\n\n", skipped)
	}
	for i := range list {
		data, err := encode(presentRequest(&list[i])) // one line
		if err != nil {
			return err
		}
		out.WriteString("event: request\ndata: ")
		out.Write(bytes.TrimRight(data, "\n"))
		out.WriteString("\n\n")
		if out.Len() >= maxPiece || i == len(list)-1 {
			if err := emit(out.Bytes()); err != nil {
				return err
			}
			out.Reset()
		}
	}
	if out.Len() > 0 { // skipped alone
		return emit(out.Bytes())
	}
	return nil
}
