package h1

import "sync/atomic"

// phase is what a connection does, as far as the sweeper must know.
type phase uint8

const (
	phaseNone     phase = iota
	phaseIdle           // waits for a request
	phaseHead           // waits for the rest of a head
	phaseExchange       // waits for the head of an answer
	phaseStream         // passes an answer on
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
type watch struct{ word atomic.Uint64 }

// enter begins a phase with a deadline in the engine's milliseconds, 0 for none,
// and returns how the phase before was ended.
func (w *watch) enter(p phase, deadline int64) cut {
	return cut(w.word.Swap(uint64(deadline)<<16|uint64(p)) >> 8)
}

// wasCut returns whether the current phase was ended.
func (w *watch) wasCut() cut { return cut(w.word.Load() >> 8) }

// end ends the phase that word, loaded before, stands for. It reports false if
// the owner has gone on, or it was ended already.
func (w *watch) end(word uint64, c cut) bool {
	return cut(word>>8) == notCut && w.word.CompareAndSwap(word, word|uint64(c)<<8)
}

func phaseOf(word uint64) phase { return phase(word) }

// late reports whether the deadline has passed.
func late(word uint64, now int64) bool {
	deadline := int64(word >> 16)
	return deadline != 0 && now >= deadline
}
