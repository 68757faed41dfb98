// Package change names what a committed change touched, so that whoever holds
// a compiled copy of the configuration can follow (architecture, Snapshot).
package change

// Kind tells which record a change touched.
type Kind string

// The kinds of records that the data plane holds a compiled copy of.
const (
	Account Kind = "account"
	Gateway Kind = "gateway" // the gateway itself or any of its routes
	Key     Kind = "key"
)

// Change is one entry of the store's change log, written in the transaction
// that makes the change. Seq grows by at least one from entry to entry, in the
// order of commits.
type Change struct {
	Seq  int64
	Kind Kind
	ID   string
}
