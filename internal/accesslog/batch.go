package accesslog

import (
	"crypto/rand"
	"errors"
)

// ErrSpooled is returned by a store that has kept a batch elsewhere, where it survives the end of the
// process, and will store it later. The sink must not write the batch again.
var ErrSpooled = errors.New("the batch is in the spool, and is stored later")

// BatchID identifies what a sink writes to a store in one transaction. If the response to a
// write is lost, the sink writes the same batch again under the same identifier, and a store
// that has it already does nothing. So no record is stored or counted twice.
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

// Open returns the identifier of the open batch, or opens the next one. isNew tells which: the
// content of a batch that is open already must stay as it was, because the store may have it.
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
