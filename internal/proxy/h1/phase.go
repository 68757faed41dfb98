package h1

import (
	"runtime"
	"sync/atomic"
)

// phase is what a connection does, as far as the sweeper must know.
type phase uint8

const (
	phaseNone     phase = iota
	phaseIdle           // waits for a request
	phaseHead           // waits for the rest of a head
	phaseWait           // waits for the decision
	phaseExchange       // waits for the head of an answer
	phaseStream         // passes an answer on
	phaseForeign        // is served by Config.Forward
	phaseDrain          // waits for the rest of what nobody wants
	phaseTunnel         // passes bytes both ways
	phaseReading        // waits for the client's body
	phaseWriting        // waits for the client to take bytes
)

// cut is why the sweeper ended a phase.
type cut uint8

const (
	notCut   cut = iota
	cutLate      // the deadline has passed
	cutGone      // the client has left
	cutDrain     // the engine shuts down
)

// watch tells the sweeper what a connection does and until when. The owner of the
// connection goes from phase to phase; the sweeper may end one. Both go through
// the one word, so that an end never hits the phase after the one it meant.
type watch struct {
	word    atomic.Uint64 // deadline, cut, mark of a hold, phase
	holding atomic.Bool   // the sweeper looks at what is otherwise the owner's alone
}

// held marks a phase that the sweeper has held: its owner makes sure that the
// sweeper is done before it goes on.
const held = 1 << 7

// enter begins a phase with a deadline in the engine's milliseconds, 0 for none,
// and returns how the phase before was ended.
func (w *watch) enter(p phase, deadline int64) cut {
	before := w.word.Swap(uint64(deadline)<<16 | uint64(p))
	if before&held != 0 {
		for w.holding.Load() {
			runtime.Gosched()
		}
	}
	return cut(before >> 8)
}

// hold keeps the owner in the phase that word, loaded before, stands for, until
// letGo. It reports false if the owner has gone on. One goroutine alone holds.
func (w *watch) hold(word uint64) bool {
	w.holding.Store(true)
	if w.word.CompareAndSwap(word, word|held) {
		return true
	}
	w.holding.Store(false)
	return false
}

func (w *watch) letGo() { w.holding.Store(false) }

// wasCut returns whether the current phase was ended.
func (w *watch) wasCut() cut { return cut(w.word.Load() >> 8) }

// end ends the phase that word, loaded before, stands for. It reports false if
// the owner has gone on, or it was ended already.
func (w *watch) end(word uint64, c cut) bool {
	return cut(word>>8) == notCut && w.word.CompareAndSwap(word, word|uint64(c)<<8)
}

func phaseOf(word uint64) phase { return phase(word &^ held) }

// late reports whether the deadline has passed.
func late(word uint64, now int64) bool {
	deadline := int64(word >> 16)
	return deadline != 0 && now >= deadline
}
