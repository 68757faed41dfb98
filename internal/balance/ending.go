package balance

import (
	"sync/atomic"
	"time"
)

// Ending is when requests in flight at a target must end, because it was taken away (targets.md, section 6). The zero value is never.
// It is safe for concurrent use.
type Ending struct {
	at atomic.Int64           // 0 for never
	of atomic.Pointer[Ending] // the same target's among several, if it was the only one before
}

// Ends reports whether requests must end, because the target was taken away for longer than Config.DrainTimeout.
func (e *Ending) Ends(now time.Duration) bool {
	if at := e.at.Load(); at != 0 && int64(now) >= at {
		return true
	}
	of := e.of.Load()
	return of != nil && of.Ends(now)
}

// after notes that what is in flight ends after timeout, unless that is 0 or it is to end already.
func (e *Ending) after(now, timeout time.Duration) {
	if timeout > 0 {
		e.at.CompareAndSwap(0, int64(now+timeout))
	}
}
