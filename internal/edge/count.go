package edge

import (
	"sync/atomic"
	"time"
)

// Stats are the figures of a Server since its beginning, and Open those of now.
type Stats struct {
	Open            int64 // connections
	Accepted        int64 // those that were refused included
	RefusedTotal    int64 // beyond MaxConnections
	RefusedAddress  int64 // beyond MaxConnectionsPerAddress
	BadHandshakes   int64 // of TLS
	BadProxyHeaders int64
	AcceptErrors    int64
}

// Stats returns the figures.
func (s *Server) Stats() Stats {
	c := &s.counts
	return Stats{
		Open: s.slots.open.Load(), Accepted: c.accepted.Load(), RefusedTotal: c.refusedTotal.Load(), RefusedAddress: c.refusedAddress.Load(),
		BadHandshakes: c.handshakes.Load(), BadProxyHeaders: c.headers.Load(), AcceptErrors: c.acceptErrors.Load(),
	}
}

// counts are behind Stats, with what keeps the log from repeating itself.
type counts struct {
	accepted, refusedTotal, refusedAddress, handshakes, headers, acceptErrors atomic.Int64

	refusedLog, headerLog, acceptLog seldom
}

// refused counts a connection that was closed for its number.
func (s *Server) refused(counter *atomic.Int64, message string, args ...any) {
	counter.Add(1)
	if s.counts.refusedLog.due(time.Now()) {
		s.cfg.Log.Warn(message, args...)
	}
}

// seldom says when a line that could come with every connection is due again.
type seldom struct{ last atomic.Int64 }

const seldomTime = 10 * time.Second

func (s *seldom) due(now time.Time) bool {
	last, t := s.last.Load(), now.UnixNano()
	return (last == 0 || t-last >= int64(seldomTime)) && s.last.CompareAndSwap(last, t)
}
