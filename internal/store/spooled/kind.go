package spooled

// Kind is a kind of records.
type Kind int

// The kinds.
const (
	Audit    Kind = iota // audit records and gaps
	Traffic              // counts of requests
	Requests             // refused and failed requests
	Events               // events of the data plane
	kinds
)

// String returns the name of the kind, which the names of its files begin with.
func (k Kind) String() string { return [...]string{"audit", "traffic", "requests", "events"}[k] }

// share returns the part of the spool that the kind may fill. Callers can cause any number of refused
// requests and exceeded limits; these must not use up the room of audit records.
func (k Kind) share(maxBytes int64) int64 {
	return maxBytes / [...]int64{2, 4, 8, 8}[k]
}
