package webhook

import "time"

// Backlog summarizes the deliveries that are waiting for active endpoints.
type Backlog struct {
	Waiting int64     // number of unfinished deliveries, whether due or not
	Due     time.Time // when the oldest due delivery became due, or its endpoint's pause ended if that was later; zero if none is due
}
