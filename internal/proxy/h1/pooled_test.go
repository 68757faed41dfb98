package h1

import (
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1"
)

// Guarantee: long heads and trailers do not make what is pooled grow for good.
func TestPooledMemoryIsBounded(t *testing.T) {
	const long = 60 << 10
	t.Run("exchanges", func(t *testing.T) {
		var e Engine
		x := newExchange(&e.pools)
		section := []byte("X-Long: " + strings.Repeat("v", long) + "\r\n\r\n")
		body := append([]byte("0\r\n"), section...)
		var trailers http1.Trailers
		if done, err := new(http1.TrailerParser).Parse(section, &trailers); !done || err != nil {
			t.Fatalf("the trailers were not parsed: %v, %v", done, err)
		}
		x.trip.body = *framingOf(t, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", false)
		x.body.start(http1.ByChunks, 0, &x.trip.body)
		if p, err := x.body.step(body, 0, len(body)); err != nil || len(p.end) < long {
			t.Fatalf("the end of the request's body has %d bytes, want the trailers: %v", len(p.end), err)
		}
		x.response.body.start(encoderState{chunked: true, trailers: true, response: true})
		if end := x.response.body.finish(section, trailers.Fields()); len(end) < long {
			t.Fatalf("the end of the response's body has %d bytes, want the trailers", len(end))
		}
		x.response.room = make([]byte, 4*long)
		x.trip.reader.body.partial = make([]byte, long)
		x.reset()
		eachMember(reflect.ValueOf(x).Elem(), "", func(path string, v reflect.Value) bool {
			if v.Kind() == reflect.Slice && path != ".input.in" && v.Cap()*int(v.Type().Elem().Size()) > keepRoom {
				t.Errorf("a pooled exchange keeps %d bytes in %s, want at most %d", v.Cap()*int(v.Type().Elem().Size()), path, keepRoom)
			}
			return true
		})
	})
}
