package webhook

import "time"

// Backlog is what waits for endpoints that are active.
type Backlog struct {
	Waiting int64     // deliveries that are still to be made, due or not
	Due     time.Time // since when the one that is due longest is; zero if none is
}
