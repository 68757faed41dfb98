package h1

import (
	"runtime"
	"sync/atomic"
)

// phase is what a connection is waiting for, as far as it matters to the sweeper.
type phase uint8

const (
	phaseNone     phase = iota // nothing that the sweeper could end
	phaseNew                   // the first request
	phaseIdle                  // a further request
	phaseHead                  // the rest of a head
	phaseWait                  // the decision
	phaseExchange              // the head of a response, or a connection to the upstream
	phaseStream                // the rest of a response
	phaseDrain                 // the rest of an unwanted body, or the client to close
	phaseTunnel                // the end of both directions of a tunnel
	phaseReading               // the client's body
	phaseWriting               // the client to accept bytes
)

// cut is why the sweeper ended a phase.
type cut uint8

const (
	notCut          cut = iota
	cutTimeout          // the deadline has passed
	cutClientClosed     // the client has closed its connection
	cutShutdown         // the engine shuts down
	cutAccess           // the request may not go on: conn.denied says why
)

// phaseClock is the phase of one activity and its deadline. The goroutine that serves the
// connection, its owner, moves from phase to phase. The sweeper may end a phase, or hold it
// while it uses fields that otherwise only the owner uses. Both change one word by
// compare-and-swap, so that the sweeper never ends or holds a later phase than the one it
// has seen.
//
// A connection has three: phase (what the connection as a whole waits for), reading and
// writing (its reads from and writes to the client during an exchange).
//
//	         enter                      enter: returns notCut
//	(start) ───────► running ─────────────────────────────────────► next phase
//	                  │   │ ▲                                            ▲
//	       sweeper:   │   │ └─ unhold (the mark stays)                   │
//	       hold ◄─────┘   │                                              │
//	        │             │ sweeper: end(why)                            │
//	        │             ▼                                              │
//	        │           cut ── the owner's system call fails ── enter: ──┤
//	        │             ▲                             returns why      │
//	        ├─ end(why) ──┘                                              │
//	        └── enter waits here until unhold ───────────────────────────┘
//
// As conn.phase moves for one request over a kept connection:
//
//	New, Idle ─► Head ─► decision ┬─► Exchange ─► Stream ─► Idle
//	        ▲                     ├─► Wait ─► None ─► Exchange
//	        │                     ├─► Drain ─► Idle, or the end of the connection
//	        └───── response ◄─────┘          Exchange ─► Tunnel ─► the end
type phaseClock struct {
	word    atomic.Uint64 // bits 0–6: phase, 7: held, 8–15: cut, 16–63: deadline
	holding atomic.Bool   // the sweeper is between hold and unhold
}

// held marks a phase that the sweeper has held: its owner waits for unhold before it
// continues.
const held = 1 << 7

// enter begins a phase with a deadline in the engine's milliseconds, or 0 for none. It
// returns why the previous phase was ended, or notCut.
func (w *phaseClock) enter(p phase, deadline int64) cut {
	before := w.word.Swap(uint64(deadline)<<16 | uint64(p))
	if before&held != 0 {
		for w.holding.Load() {
			runtime.Gosched()
		}
	}
	return cut(before >> 8)
}

// hold keeps the owner in the phase of word, a value loaded before, until unhold. It
// reports false if the owner has moved on. Only the sweeper holds phases.
func (w *phaseClock) hold(word uint64) bool {
	w.holding.Store(true)
	if w.word.CompareAndSwap(word, word|held) {
		return true
	}
	w.holding.Store(false)
	return false
}

// unhold lets the owner continue after hold.
func (w *phaseClock) unhold() { w.holding.Store(false) }

// wasCut returns why the current phase was ended, or notCut.
func (w *phaseClock) wasCut() cut { return cut(w.word.Load() >> 8) }

// end ends the phase of word, a value loaded before. It reports false if the owner has
// moved on, or the phase has already ended.
func (w *phaseClock) end(word uint64, why cut) bool {
	return cut(word>>8) == notCut && w.word.CompareAndSwap(word, word|uint64(why)<<8)
}

func phaseOf(word uint64) phase { return phase(word &^ held) }

// expired reports whether the deadline of word has passed.
func expired(word uint64, now int64) bool {
	deadline := int64(word >> 16)
	return deadline != 0 && now >= deadline
}
