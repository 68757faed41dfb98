package edge

import (
	"sync/atomic"
	"time"
)

// Stats are the statistics of a Server. Open is a current value; the others count
// since the Server was made.
type Stats struct {
	Open            int64 // connections that are open now
	Accepted        int64 // accepted connections, including refused ones
	RefusedTotal    int64 // connections closed because of MaxConnections
	RefusedAddress  int64 // connections closed because of MaxConnectionsPerAddress
	BadHandshakes   int64 // failed TLS handshakes
	BadProxyHeaders int64 // malformed PROXY headers from trusted proxies
	AcceptErrors    int64 // failed calls of Accept
}

// Stats returns the current statistics.
func (s *Server) Stats() Stats {
	c := &s.counters
	return Stats{
		Open:            s.slots.open.Load(),
		Accepted:        c.accepted.Load(),
		RefusedTotal:    c.refusedTotal.Load(),
		RefusedAddress:  c.refusedAddress.Load(),
		BadHandshakes:   c.badHandshakes.Load(),
		BadProxyHeaders: c.badProxyHeaders.Load(),
		AcceptErrors:    c.acceptErrors.Load(),
	}
}

// counters holds the values behind Stats, and the throttles of the log lines that
// go with them.
type counters struct {
	accepted, refusedTotal, refusedAddress       atomic.Int64
	badHandshakes, badProxyHeaders, acceptErrors atomic.Int64

	refusedLog, proxyHeaderLog, acceptLog logThrottle
}

// logRefused counts in counter, and logs, a connection that was closed because a
// limit is reached.
func (s *Server) logRefused(counter *atomic.Int64, message string, args ...any) {
	counter.Add(1)
	if s.counters.refusedLog.allow(time.Now()) {
		s.cfg.Log.Warn(message, args...)
	}
}

// logThrottle limits a log line that any connection could cause to one in
// logInterval. The zero value is ready to use.
type logThrottle struct{ last atomic.Int64 } // Unix time in nanoseconds

const logInterval = 10 * time.Second

// allow reports whether the line may be logged now.
func (t *logThrottle) allow(now time.Time) bool {
	last, nanos := t.last.Load(), now.UnixNano()
	return (last == 0 || nanos-last >= int64(logInterval)) && t.last.CompareAndSwap(last, nanos)
}
