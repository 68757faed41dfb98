package proxy_test

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// Guarantee: the bytes a second that all connections together discard are bounded, and so is the
// number of these connections.
func TestLingerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns, size = 16, 64 << 10
		var l proxy.Linger
		var all sync.WaitGroup
		var mu sync.Mutex
		read, end := 0, time.Now().Add(10*time.Second)
		for range conns {
			all.Go(func() {
				l.Discard(make([]byte, size), func(b []byte) (int, error) {
					mu.Lock()
					defer mu.Unlock()
					if !time.Now().Before(end) {
						return 0, io.EOF
					}
					read += len(b)
					return len(b), nil
				})
			})
		}
		all.Wait()
		if most := 10*proxy.LingerRate + proxy.LingerRate + conns*size; read > most || read < 10*proxy.LingerRate {
			t.Errorf("discarded %d bytes in 10 s, want at least %d and at most %d", read, 10*proxy.LingerRate, most)
		}

		finish, reading := make(chan struct{}), 0
		for range proxy.MaxLingering + 10 {
			all.Go(func() {
				l.Discard(nil, func([]byte) (int, error) {
					mu.Lock()
					reading++
					mu.Unlock()
					<-finish
					return 0, errors.New("over")
				})
			})
		}
		synctest.Wait()
		if reading != proxy.MaxLingering {
			t.Errorf("%d connections are being closed in stages, want %d", reading, proxy.MaxLingering)
		}
		close(finish)
		all.Wait()
	})
}

// Guarantee: a connection is read for five seconds at most, and for two without a byte.
func TestLingerUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time stands still
		for ago, want := range map[time.Duration]time.Duration{0: 2 * time.Second, 2 * time.Second: 2 * time.Second, 4 * time.Second: time.Second, 5 * time.Second: 0} {
			if got := time.Until(proxy.LingerUntil(time.Now().Add(-ago))); got != want {
				t.Errorf("begun %v ago: the read may wait for %v, want %v", ago, got, want)
			}
		}
	})
}
