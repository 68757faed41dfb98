package stored

// DirectDeliveries is how many deliveries a transaction writes itself for all the events that it raises. An event
// with more of them is fanned out later (webhook/fanout), so that the size of a transaction does not depend on the
// number of endpoints.
const DirectDeliveries = 16

// FanOut is an event whose deliveries are not all written yet.
type FanOut struct {
	N       int64 // position of the event
	EventID string
	Account string
	Type    string
	After   string // the endpoint up to which deliveries are written; "" for none
}
