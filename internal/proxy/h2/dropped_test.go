package h2

import (
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// Guarantee: a body whose last part arrives after the response has ended, and is dropped, is never
// forwarded as if it were whole.
func TestDroppedBodyIsNotWhole(t *testing.T) {
	for name, rest := range map[string]func(f *http2.Framer, trailers []byte) error{
		"data": func(f *http2.Framer, _ []byte) error { return f.WriteData(1, true, []byte("rest")) },
		"data, and an empty frame": func(f *http2.Framer, _ []byte) error {
			_ = f.WriteData(1, false, []byte("rest"))
			return f.WriteData(1, true, nil)
		},
		"trailers": func(f *http2.Framer, trailers []byte) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: trailers, EndHeaders: true, EndStream: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newServer(t, nil)
				forwarded := make(chan bool, 1)
				e.exchange = func(s *stream) error {
					c := s.conn
					c.mu.Lock()
					s.uploading, s.headed = true, s.beginHead(200)
					c.proto.EndHead(true)
					s.end()
					c.flushLocked()
					c.mu.Unlock()
					synctest.Wait() // for the rest of the body
					_, ok := s.nextPart()
					s.uploadEnded(ok)
					forwarded <- ok
					if s.leave() {
						t.Error("the request counts as sent")
					}
					return nil
				}
				p := connect(t, e, nil)
				p.begin()
				p.write(func(f *http2.Framer) error {
					return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.head(), EndHeaders: true})
				})
				<-p.ended
				p.write(func(f *http2.Framer) error { return rest(f, []byte("\x00\x03x-a\x01b")) })
				if <-forwarded {
					t.Error("the end of the request was forwarded, but not all of it")
				}
			})
		})
	}
}
