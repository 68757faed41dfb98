package h1

import (
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy/message"
)

// Guarantee: long heads and trailers do not make pooled memory grow for good.
func TestPooledMemoryIsBounded(t *testing.T) {
	const long = 60 << 10
	t.Run("exchanges", func(t *testing.T) {
		var e Engine
		x := newExchange(&e.buffers)
		section := []byte("X-Long: " + strings.Repeat("v", long) + "\r\n\r\n")
		body := append([]byte("0\r\n"), section...)
		var trailers http1.Trailers
		if done, err := new(http1.TrailerParser).Parse(section, &trailers); !done || err != nil {
			t.Fatalf("the trailers were not parsed: %v, %v", done, err)
		}
		*x.attempt.Framing() = *chunkedBody(t)
		x.body.Start(http1.ByChunks, 0, x.attempt.Framing())
		if p, err := x.body.Step(body, 0, len(body)); err != nil || len(p.End) < long {
			t.Fatalf("the end of the request's body has %d bytes, want the trailers: %v", len(p.End), err)
		}
		x.response.body.Start(message.EncoderState{Chunked: true, Trailers: true, Response: true})
		if end := x.response.body.Finish(section, trailers.Fields()); len(end) < long {
			t.Fatalf("the end of the response's body has %d bytes, want the trailers", len(end))
		}
		x.response.room = make([]byte, 4*long)
		eachMember(reflect.ValueOf(x).Elem(), "", func(path string, v reflect.Value) bool {
			if path == ".attempt.trip.reader.body.partial" {
				v.SetBytes(make([]byte, long))
			}
			return true
		})
		x.reset()
		eachMember(reflect.ValueOf(x).Elem(), "", func(path string, v reflect.Value) bool {
			if v.Kind() == reflect.Slice && path != ".input.in" && v.Cap()*int(v.Type().Elem().Size()) > message.KeepRoom {
				t.Errorf("a pooled exchange keeps %d bytes in %s, want at most %d", v.Cap()*int(v.Type().Elem().Size()), path, message.KeepRoom)
			}
			return true
		})
	})
}
