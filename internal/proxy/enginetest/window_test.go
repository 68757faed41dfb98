package enginetest_test

import (
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: while a request waits for a connection to the upstream, its HTTP/2 client gets no window for the body, so that
// no more than 64 KiB of it wait. It gets window when the request is forwarded.
func TestWaitingUploadGetsNoWindow(t *testing.T) {
	t.Parallel()
	const window = 1<<16 - 1
	begun, release := make(chan bool, 2), make(chan bool)
	addr := plainUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		if r.Method == "GET" {
			<-release
			return
		}
		_, _ = r.Body.Read(make([]byte, 1))
	})
	g := start(t, setup{upstream: addr, adjust: func(u *gateway.Upstream) { u.MaxConnections = 1 }})
	f := g.dialHTTP2()
	request := func(stream uint32, method string) {
		f.request(stream, method == "GET", [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/public/a"}})
	}
	windows := func(until func(http2.Frame) bool) (of int) {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if w, ok := frame.(*http2.WindowUpdateFrame); ok && w.StreamID == 3 {
				of += int(w.Increment)
			}
			if until(frame) {
				return of
			}
		}
	}
	request(1, "GET")
	receive(t, "the first request", begun)
	request(3, "POST")
	for sent := 0; sent < window; sent += 1 << 14 {
		_ = f.WriteData(3, false, make([]byte, min(1<<14, window-sent)))
	}
	_ = f.WritePing(false, [8]byte{}) // acknowledged behind what was sent for the frames before
	acknowledged := func(frame http2.Frame) bool { ping, ok := frame.(*http2.PingFrame); return ok && ping.IsAck() }
	if got := windows(acknowledged); got != 0 {
		t.Errorf("a request that waits for a connection got window for %d bytes, want none", got)
	}
	close(release)
	receive(t, "the second request", begun)
	windows(func(frame http2.Frame) bool { w, ok := frame.(*http2.WindowUpdateFrame); return ok && w.StreamID == 3 })
}
