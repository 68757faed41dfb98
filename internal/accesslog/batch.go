package accesslog

import (
	"crypto/rand"
	"errors"
)

// ErrSpooled says that the store has kept a batch elsewhere, where it survives the end of the
// process, and will store it later. The sink must not write the batch again.
var ErrSpooled = errors.New("the batch is in the spool, and is stored later")

// BatchID identifies what a sink writes to a store in one transaction. If the result of a write is
// unknown, the sink writes the same batch again under the same identifier. A store that has it
// already does nothing, so no record is stored or counted twice.
type BatchID struct {
	Writer string // random, of one sink of one process; "" for a batch that is never repeated
	Number int64  // ascending from 1
}

// Batches numbers the batches of one sink, one after the other.
type Batches struct {
	id   BatchID
	open bool
}

// NewBatches returns the Batches of a sink.
func NewBatches() Batches { return Batches{id: BatchID{Writer: rand.Text()}} }

// Open returns the identifier of the open batch, or opens the next one. isNew reports whether it
// was opened now. The content of a batch that was open already must stay as it was, because the
// store may have it.
func (b *Batches) Open() (id BatchID, isNew bool) {
	if b.open {
		return b.id, false
	}
	b.open = true
	b.id.Number++
	return b.id, true
}

// Close ends the open batch: the store has it, or certainly does not.
func (b *Batches) Close() { b.open = false }
