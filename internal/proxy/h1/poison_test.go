package h1

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// roomOfExchanges lists the members that reset leaves unchanged: memory that is written
// before it is read, and values that are made only once.
var roomOfExchanges = map[string]bool{
	".c": true, ".closing": true, ".tracing": true, ".attempt.trip.onReadable": true, ".attempt.trip.buffers": true,
	".input.in": true, ".input.own": true,
	".attempt.call": true, // it has a Reset of its own
	".req":          true, ".attempt.trip.reader.resp": true,
	".attempt.trip.reader.body.section": true, ".attempt.trip.reader.body.partial": true,
	".body.Decoder.section": true, ".body.Decoder.partial": true, ".attempt.trip.body.encoder.end": true,
	".response.body.end": true, ".response.room": true,
}

// madeOnce lists those members of roomOfExchanges that must not be overwritten.
var madeOnce = map[string]bool{
	".c": true, ".closing": true, ".tracing": true, ".attempt.trip.onReadable": true, ".attempt.trip.buffers": true, ".input.in": true,
	".attempt.call": true,
}

// eachMember calls f with every member of v, recursively, and its path. f returns whether
// to go into it.
func eachMember(v reflect.Value, path string, f func(path string, v reflect.Value) bool) {
	if v.CanAddr() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	if path != "" && !f(path, v) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachMember(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Array:
		for i := range v.Len() {
			eachMember(v.Index(i), path, f)
		}
	}
}

// poison overwrites every member of x with a value that is not its zero.
func poison(t *testing.T, x *exchange) {
	t.Helper()
	eachMember(reflect.ValueOf(x).Elem(), "", func(path string, v reflect.Value) bool {
		if madeOnce[path] {
			return false
		}
		switch v.Kind() {
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[netip.Addr]() {
				v.Set(reflect.ValueOf(netip.MustParseAddr("203.0.113.99")))
				return false
			}
			if at, is := v.Addr().Interface().(*atomic.Pointer[balance.Ending]); is {
				at.Store(&balance.Ending{})
				return false
			}
			return true
		case reflect.Array:
			return true
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v.SetInt(0x5a)
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			v.SetUint(0x5a)
		case reflect.String:
			v.SetString("poison")
		case reflect.Slice:
			s := reflect.MakeSlice(v.Type(), 7, 7)
			if s.Type().Elem().Kind() == reflect.Uint8 {
				copy(s.Bytes(), "poison!")
			}
			v.Set(s)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { panic("a poisoned function was called") }))
		case reflect.Interface:
			switch v.Type() {
			case reflect.TypeFor[error]():
				v.Set(reflect.ValueOf(errors.New("poison")))
			case reflect.TypeFor[message.Receiver]():
				v.Set(reflect.ValueOf(&relay{}))
			case reflect.TypeFor[admit.Header]():
				v.Set(reflect.ValueOf(&exchange{}))
			case reflect.TypeFor[io.Reader]():
				v.Set(reflect.ValueOf(strings.NewReader("poison")))
			default:
				t.Fatalf("%s is a %s, for which poison has no value", path, v.Type())
			}
		default:
			t.Fatalf("%s is a %s, for which poison has no value", path, v.Type())
		}
		return false
	})
}

// Guarantee: a released exchange keeps no value of an earlier request in any member,
// including members that are added later.
func TestReleaseForgetsEveryMember(t *testing.T) {
	e := &Engine{}
	x := newExchange(&e.buffers)
	poison(t, x)
	e.release(x)
	got, want := make(map[string][]any), make(map[string][]any)
	members := func(x *exchange, to map[string][]any) {
		eachMember(reflect.ValueOf(x).Elem(), "", func(path string, v reflect.Value) bool {
			switch v.Kind() {
			case reflect.Struct, reflect.Array:
				return !roomOfExchanges[path]
			}
			if !roomOfExchanges[path] {
				to[path] = append(to[path], v.Interface())
			}
			return false
		})
	}
	members(x, got)
	members(newExchange(&e.buffers), want)
	if len(want) < 100 {
		t.Fatalf("only %d members were found", len(want))
	}
	for path := range want {
		if !reflect.DeepEqual(got[path], want[path]) {
			t.Errorf("%s is %.60v after release, want %.60v", path, got[path], want[path])
		}
	}
}

// exchangesFor are the requests of a client on one connection, by what is special about
// them. Each line is sent after the response to the previous one has arrived.
var exchangesFor = map[string][]string{
	"GET":               {"GET /a?b=c HTTP/1.1\r\nKEY\r\nAccept: */*\r\n\r\n"},
	"no body wanted":    {"HEAD /a HTTP/1.1\r\nKEY\r\n\r\n"},
	"trailers wanted":   {"GET /a HTTP/1.1\r\nKEY\r\nTE: trailers\r\n\r\n"},
	"body by length":    {"POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello"},
	"body in chunks":    {"POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"},
	"HTTP/1.0":          {"GET /a HTTP/1.0\r\nKEY\r\n\r\n"},
	"public":            {"GET /public/a HTTP/1.1\r\nHost: a\r\n\r\n"},
	"refused":           {"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"},
	"refused with body": {"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"},
	"malformed":         {"GET /a HTTP/1.1\r\nHost : a\r\n\r\n"},
	"malformed target":  {"GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n"},
	"preflight":         {"OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: https://app.test\r\nAccess-Control-Request-Method: PUT\r\n\r\n"},
	"origin":            {"GET /a HTTP/1.1\r\nKEY\r\nOrigin: https://app.test\r\n\r\n"},
	"not found":         {"GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n"},
	"two in turn":       {"POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "GET /b HTTP/1.1\r\nKEY\r\n\r\n"},
	"pipelined":         {"POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: a\r\n\r\n"},
}

// Guarantee: a reused exchange sends the next client and upstream the same bytes as a new
// one, whatever values its members had before it was released.
func TestReusedExchangeShowsNoTrace(t *testing.T) {
	requests := make(chan string, 100)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			head, err := c.ReadHead()
			if err != nil {
				return
			}
			if strings.Contains(head, "POST ") {
				body := make([]byte, len("hello"))
				if strings.Contains(head, "chunked") {
					body = make([]byte, len("5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"))
				}
				if _, err := io.ReadFull(c, body); err != nil {
					return
				}
				head += string(body)
			}
			requests <- head
			c.Send("HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-U\r\n\r\n")
			if !strings.HasPrefix(head, "HEAD") {
				c.Send("4\r\nbody\r\n0\r\nX-U: 2\r\n\r\n")
			}
		}
	})
	s := setup{upstream: "http://" + addr, limit: "1000000/s", headers: map[string]string{"X-Secret": "s3cret"},
		cors: &gateway.CORS{Origins: []string{"https://app.test"}, Methods: []string{"PUT"}}}
	e := start(t, s)
	for name, script := range exchangesFor {
		t.Run(name, func(t *testing.T) {
			fresh := newExchange(&e.engine.buffers)
			want := talk(t, e, fresh, script, requests)
			reused := newExchange(&e.engine.buffers)
			poison(t, reused)
			reused.reset()
			reused.input.reset()
			if got := talk(t, e, reused, script, requests); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// varying matches the parts of messages that differ between two runs of one request.
var varying = regexp.MustCompile(`(req_[0-9a-z]{26}|Date: [^\r]*|X-RateLimit-Re[a-z]*: \d+|"[a-z]*";r=\d+[^\r]*|RateLimit: [^\r]*)`)

// talk serves one connection with x and returns everything that the client and the upstream received.
func talk(t *testing.T, e *harness, x *exchange, script []string, requests chan string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(e.engine, server, ConnInfo{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	c.x, x.c = x, c
	e.engine.conns.add(c)
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer e.engine.conns.remove(c)
		defer c.closeAll()
		c.serve(nil)
	}()
	key := "Host: api.test\r\nAuthorization: Bearer " + e.key
	for i, request := range script {
		if i > 0 {
			<-requests // the upstream has had the one before
		}
		_, _ = io.WriteString(client, strings.ReplaceAll(request, "KEY", key))
	}
	_ = client.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	<-served
	all := string(got)
	for len(requests) > 0 {
		all += "\n--- the upstream got\n" + <-requests
	}
	return varying.ReplaceAllString(all, "VARYING")
}
