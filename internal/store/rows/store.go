package rows

import (
	"context"
)

// Access is what a transaction reads for. Kinds that must not wait for each other have connections of their own.
type Access int

// The kinds of access.
const (
	Calls          Access = iota // calls of the management API, and services
	OneOfThem                    // Calls, for one statement
	Reports                      // searches and reports, which end with their context
	DataPlane                    // what the data plane needs
	Streams                      // DataPlane, for a large part of the database
	Changed                      // what entries of the change log are about, for one statement
	ChangedStreams               // Changed, for a large part of the database
)

// Durability is what a committed transaction survives.
type Durability int

// The durabilities.
const (
	Durable   Durability = iota // a power failure and, with replicas, the loss of the server
	OfTraffic                   // less, for records of traffic, which are written many times a second
)

// Engine is what an engine gives a Store.
type Engine struct {
	// Read runs f in a reading transaction. With access for one statement, it calls f again if the connection was lost.
	Read func(ctx context.Context, a Access, f func(*Reader) error) error
	// Write runs f in a transaction that writes and that is no mutation of the configuration. It calls f again after a
	// conflict.
	Write func(ctx context.Context, d Durability, f func(*Writer) error) error
	// OfRecord returns the error of reading one record, as one that matches snapshot.ErrDamaged if the record is damaged and
	// the engine can read on.
	OfRecord func(error) error
	// Staged is called after each transaction of a large push, with its number from 0.
	Staged func(ctx context.Context, n int)
	Pages  *PageCodec
	// ClaimAtOnce is about how many deliveries one transaction leases, so that a claim of thousands does not delay other
	// writers for long.
	ClaimAtOnce int
}

// Store is the part of a store that runs transactions of its own. An engine embeds it. It is safe for concurrent use.
type Store struct {
	Health
	engine Engine
}

// NewStore returns the store of an engine.
func NewStore(e Engine) *Store { return &Store{engine: e} }

// read returns the value that f reads in a transaction.
func read[T any](ctx context.Context, s *Store, a Access, f func(*Reader) (T, error)) (v T, err error) {
	err = s.engine.Read(ctx, a, func(t *Reader) error {
		v, err = f(t)
		return err
	})
	return v, err
}
