package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How connections are closed in stages (contract, 4.4).
const (
	// LingerTime is how long bytes from a client are discarded at most, and LingerSilence how long the client
	// may be silent meanwhile.
	LingerTime    = 5 * time.Second
	LingerSilence = 2 * time.Second
	// MaxLingering bounds the connections of a Linger.
	MaxLingering = 1024
	// LingerRate bounds what a Linger discards, in bytes a second.
	LingerRate = 64 << 20

	lingerBuffer = 16 << 10 // bytes that DiscardFrom reads at once
)

// Linger closes connections in stages (RFC 9112, section 9.6): after the response it closes the sending side, and
// for a while discards what the client still sends. Closing a connection at once while bytes arrive resets it, and
// the client may lose a response that it has not read yet. One Linger bounds the work for all listeners of a
// process. The zero value is ready for use. It is safe for concurrent use.
type Linger struct {
	conns atomic.Int32

	mu   sync.Mutex
	at   time.Time // of free
	free float64   // bytes that may be discarded now; negative if more were discarded
}

// Discard calls read with b until read fails. It must fail at the end of the stream, after LingerSilence
// without a byte, and LingerTime after the call of Discard. If too many other calls are running, Discard reads
// nothing.
func (l *Linger) Discard(b []byte, read func(b []byte) (int, error)) {
	defer l.conns.Add(-1)
	if l.conns.Add(1) > MaxLingering {
		return
	}
	for {
		n, err := read(b)
		if err != nil {
			return
		}
		if wait := l.spend(n, time.Now()); wait > 0 {
			<-time.After(wait)
		}
	}
}

// DiscardFrom does what Discard does for a connection that is read with ordinary calls.
func (l *Linger) DiscardFrom(c net.Conn) {
	began := time.Now()
	l.Discard(make([]byte, lingerBuffer), func(b []byte) (int, error) {
		if err := c.SetReadDeadline(LingerUntil(began)); err != nil {
			return 0, err
		}
		return c.Read(b)
	})
}

// spend notes that n bytes were discarded. It returns how long to wait for LingerRate to allow them.
func (l *Linger) spend(n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = min(LingerRate, l.free+LingerRate*now.Sub(l.at).Seconds()) - float64(n)
	l.at = now
	return time.Duration(-l.free / LingerRate * float64(time.Second))
}

// LingerUntil returns the deadline of a read for Discard, which began at the time began.
func LingerUntil(began time.Time) time.Time {
	end, silent := began.Add(LingerTime), time.Now().Add(LingerSilence)
	if silent.Before(end) {
		return silent
	}
	return end
}
