package adminapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pacedClient is a client of an export that takes time, on the clock of the server, to read each
// of the first pieces, and then reads no more.
type pacedClient struct {
	*pipe
	clock   *clock
	rate    float64       // bytes a second; 0 is without bound
	left    int           // number of pieces to read
	stopped chan struct{} // closed when it has read them
}

func (p *pacedClient) Write(b []byte) (int, error) {
	if p.left == 0 {
		close(p.stopped)
		return p.pipe.Write(b)
	}
	p.left--
	if p.rate > 0 {
		p.clock.move(time.Duration(float64(len(b)) / p.rate * float64(time.Second)))
	}
	return len(b), nil
}

// SetWriteDeadline ends a write that is blocked if the deadline is past.
func (p *pacedClient) SetWriteDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) {
		close(p.gone)
	}
	return nil
}

// Guarantee: while all slots for exports are taken, an account that has none gets the slot of a
// client that reads less than 256 KiB a second and is 10 s behind. The response to that client is
// broken off. A client that reads 256 KiB a second keeps its slot, however long its export takes.
func TestSlowExportGivesWay(t *testing.T) {
	for _, test := range []struct {
		name  string
		rate  float64
		stall time.Duration // after the last piece
		loses bool
	}{
		{"fast enough", 256 << 10, 0, false},
		{"a third of it", 256 << 10 / 3.0, 0, true},
		{"short stall", 0, 9 * time.Second, false},
		{"long stall", 0, 10 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t)
			long(s, 3000, "/"+strings.Repeat("x", 2000))
			p := &pacedClient{pipe: newPipe(), clock: s.clock, rate: test.rate, left: 30, stopped: make(chan struct{})}
			ended := s.serveExport(s.admin, p)
			<-p.stopped
			s.clock.move(test.stall)
			for i := range 7 {
				s.holdExport(s.newAccount(fmt.Sprint("account ", i)))
			}
			other := request{method: "GET", path: "/v1/audit-log?format=jsonl", key: s.newAccount("other")}
			if !test.loses {
				s.do(other).refused(429, "rate_limit_exceeded", "")
				close(p.gone)
				<-ended
				return
			}
			s.do(other).want(200)
			if end := <-ended; !aborted(end) {
				t.Errorf("the slow export ended with %v, want it broken off", end)
			}
			s.do(other).want(200) // the slot is free again, and counted once
			s.holdExport(other.key)
			s.do(request{method: "GET", path: "/v1/audit-log?format=jsonl"}).refused(429, "rate_limit_exceeded", "")
		})
	}
}

// holdExport starts an export whose client reads nothing until the end of the test.
func (s *server) holdExport(key string) {
	s.t.Helper()
	p := newPipe()
	ended := s.serveExport(key, p)
	s.t.Cleanup(func() {
		close(p.gone)
		<-ended
	})
}
