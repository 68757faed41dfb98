package upstream

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// lifetime returns for how many ticks a connection may be used for new requests, so that it
// is not used after age. Ticks are coarse and may be late, so it is at least one tick less.
// It varies by up to a fifth, so that connections that were made together do not end
// together.
func lifetime(age time.Duration) int64 {
	ticks := int64(age / tickTime)
	return max(1, ticks-1-rand.Int64N(ticks/5+1))
}

// transports is one generation of a Pool's transports. A Transport cannot be told to stop
// using a single connection, least of all one of HTTP/2, so the Pool replaces its
// transports: no connection is older than its generation.
//
//	begin                              turn            end
//	  │ takes every request             │ takes fewer   │ takes none; a connection closes
//	  │                                 │ and fewer     │ once its exchanges have ended
type transports struct {
	requests *http.Transport
	// upgrades speaks only HTTP/1.1, the version that has upgrades. It is the same as
	// requests for scheme http, and nil for h2c.
	upgrades *http.Transport
	// single speaks only HTTP/1.1, over a new connection for each request. It is nil for
	// h2c.
	single *http.Transport

	turn, end int64 // ticks
	uses      atomic.Int64
	retired   atomic.Bool
}

// newTransports returns a generation that begins now.
func (p *Pool) newTransports(now int64) *transports {
	var protocols http.Protocols
	t := &transports{}
	switch p.origin.Scheme {
	case "http":
		protocols.SetHTTP1(true)
		t.requests = p.newTransport(protocols)
		t.upgrades, t.single = t.requests, p.newTransport(protocols)
	case "https":
		protocols.SetHTTP1(true)
		t.upgrades, t.single = p.newTransport(protocols), p.newTransport(protocols)
		protocols.SetHTTP2(true)
		t.requests = p.newTransport(protocols)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		t.requests = p.newTransport(protocols)
	}
	if t.single != nil {
		t.single.MaxIdleConnsPerHost = -1 // keep none
	}
	life := lifetime(p.maxAge)
	t.end = now + life
	t.turn = t.end - life/5
	if p.limiter != nil { // two generations would take slots from each other
		t.turn = t.end
	}
	return t
}

// use returns the transports for a request, which must end with leave.
func (p *Pool) use() *transports {
	now := p.owner.tick.Load()
	t := p.current.Load()
	if now >= t.turn {
		t = p.takeTurns(now)
	}
	t.uses.Add(1)
	return t
}

// leave ends a use. In a generation that has ended, it closes the connection if this was its
// last exchange.
func (t *transports) leave() {
	t.uses.Add(-1)
	if t.retired.Load() {
		t.closeIdle()
	}
}

// takeTurns returns the current transports or the next ones. The share of the next ones grows
// from their beginning to the end of the current ones, so that the connections are replaced
// one by one.
func (p *Pool) takeTurns(now int64) *transports {
	p.turning.Lock()
	var ended []*transports
	t := p.current.Load()
	for now >= t.turn {
		if p.next == nil {
			p.next = p.newTransports(now)
		}
		if now < t.end {
			if rand.Int64N(t.end-t.turn) <= now-t.turn {
				t = p.next
			}
			break
		}
		t.retired.Store(true)
		ended = append(ended, t)
		t, p.next = p.next, nil
		p.current.Store(t)
	}
	p.old = append(p.old, ended...)
	p.turning.Unlock()
	for _, one := range ended { // closing may free a slot for a waiter, which may lead back here
		one.closeIdle()
	}
	return t
}

// sweep retires the current transports if they have ended, and forgets retired ones that are
// not in use any more.
func (p *Pool) sweep(now int64) {
	if now >= p.current.Load().end {
		p.takeTurns(now)
	}
	p.turning.Lock()
	old := slices.Clone(p.old)
	p.old = slices.DeleteFunc(p.old, func(t *transports) bool { return t.uses.Load() == 0 })
	p.turning.Unlock()
	for _, t := range old { // an HTTP/2 connection becomes idle a moment after its exchange
		t.closeIdle()
	}
}

// closeIdle closes the idle connections of every generation.
func (p *Pool) closeIdle() {
	p.turning.Lock()
	all := append(slices.Clone(p.old), p.current.Load())
	if p.next != nil {
		all = append(all, p.next)
	}
	p.turning.Unlock()
	for _, t := range all {
		t.closeIdle()
	}
}

func (t *transports) closeIdle() {
	t.requests.CloseIdleConnections()
	if t.upgrades != nil {
		t.upgrades.CloseIdleConnections()
	}
}
