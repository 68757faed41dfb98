package balance

import (
	"sync/atomic"
	"time"
)

// Ending is when requests in flight at a target must end, because it was taken away (targets.md, section 6). The zero value is never.
// It is safe for concurrent use.
type Ending struct {
	at atomic.Int64 // 0 for never
}

// Ends reports whether requests must end, because the target was taken away for longer than Config.DrainTimeout.
func (e *Ending) Ends(now time.Duration) bool {
	at := e.at.Load()
	return at != 0 && int64(now) >= at
}

// after notes that what is in flight ends after timeout, unless that is 0 or it is to end already.
func (e *Ending) after(now, timeout time.Duration) {
	if timeout > 0 {
		e.at.CompareAndSwap(0, int64(now+timeout))
	}
}

// byName sets when what is in flight at a target ends that was reached by its name, so may be at any of its addresses: cfg says
// whether the target takes part.
func (e *Ending) byName(now time.Duration, url string, cfg *Config) {
	if cfg.hasTarget(url) {
		e.at.Store(0)
	} else {
		e.after(now, cfg.DrainTimeout)
	}
}
