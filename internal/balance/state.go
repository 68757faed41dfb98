package balance

import "time"

// State is the state of a target's address as it is shown (section 3).
type State uint8

// The states. A half-open address is shown as ejected, and one that waits for its first check as warming.
const (
	Healthy State = iota
	Unhealthy
	Ejected
	Warming
)

// String returns the name of the state in the API.
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Unhealthy:
		return "unhealthy"
	case Ejected:
		return "ejected"
	case Warming:
		return "warming"
	}
	return "unknown"
}

// Transition is a change of the state of an address, or of what checks find at it, for events. Upstreams whose checks differ
// may see one address in different states.
type Transition struct {
	At      time.Duration
	Address *Address
	Check   string // ID of the Check that found it; "" for an ejection and its end
	State   State  // Unhealthy, Ejected or Healthy
	Reason  string
	Count   int           // the failures in a row that led to it
	Until   time.Duration // of an ejection
}

// Sink receives transitions in their order for each address. It is called with a lock held: it must not block, and must not
// call this package. It may be nil.
type Sink func(Transition)
