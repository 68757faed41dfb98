package http2

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1"
)

// without returns fields without those that begin with a prefix.
func without(fields []string, prefix string) (rest []string) {
	for _, f := range fields {
		if !strings.HasPrefix(f, prefix) {
			rest = append(rest, f)
		}
	}
	return rest
}

// readRequest returns the head of a request with these fields.
func readRequest(t *testing.T, cfg Config, r *Request, fields ...string) error {
	t.Helper()
	c := NewConn(cfg)
	c.Feed(0, newClient().head(1, 0, fields...).Bytes())
	var ev Event
	for c.Next(&ev) {
		if ev.Kind == Head {
			return c.ReadRequest(r)
		}
	}
	t.Fatalf("got no head, error %v", c.Err())
	return nil
}

// Guarantee: a request is rejected exactly if RFC 9113, 8.2 and 8.3 call it malformed, or if
// package http1 rejects it.
func TestMalformedRequests(t *testing.T) {
	with := func(fields ...string) []string { return append(append([]string{}, get...), fields...) }
	for _, c := range []struct {
		name   string
		fields []string
		want   error
	}{
		{"a request", get, nil},
		{"upper-case name", with("X-a: b"), errName},
		{"empty name", with(": b"), errName},
		{"name with a space", with("x a: b"), errName},
		{"name with a colon", with("x:a: b"), errName},
		{"name beyond ASCII", with("x\xe9: b"), errName},
		{"empty value", with("x-a: "), nil},
		{"value with LF", with("x-a: b\nc"), errValue},
		{"value with CR", with("x-a: b\rc"), errValue},
		{"value with NUL", with("x-a: b\x00c"), errValue},
		{"value with a control byte", with("x-a: b\x01c"), errValue},
		{"value beyond ASCII", with("x-a: \xe9"), nil},
		{"value with a tab", with("x-a: b\tc"), nil},
		{"value that begins with a space", with("x-a:  b"), errValue},
		{"value that ends with a tab", with("x-a: b\t"), errValue},
		{"connection", with("connection: keep-alive"), errConnection},
		{"proxy-connection", with("proxy-connection: keep-alive"), errConnection},
		{"keep-alive", with("keep-alive: 1"), errConnection},
		{"transfer-encoding", with("transfer-encoding: chunked"), errConnection},
		{"upgrade", with("upgrade: websocket"), errConnection},
		{"te: trailers", with("te: trailers"), nil},
		{"te: gzip", with("te: trailers, gzip"), errTE},
		{"content-length twice", with("content-length: 1", "content-length: 1"), errLength},
		{"content-length that is no number", with("content-length: +1"), errLength},
		{"pseudo-header field after a field", append(without(get, ":authority"), "x-a: b", ":authority: a.test"), errLate},
		{"field before all of them", append([]string{"x-a: b"}, get...), errMissing},
		{"unknown pseudo-header field", with(":x: y"), errPseudo},
		{"pseudo-header field of a response", with(":status: 200"), errPseudo},
		{":method twice", with(":method: GET"), errTwice},
		{":path twice", with(":path: /"), errTwice},
		{":authority twice", with(":authority: a.test"), errTwice},
		{"no :method", without(get, ":method"), errMissing},
		{"no :scheme", without(get, ":scheme"), errMissing},
		{"no :path", without(get, ":path"), errMissing},
		{"no :authority", without(get, ":authority"), errMissing},
		{"Host instead of :authority", append(without(get, ":authority"), "host: a.test"), nil},
		{"Host as :authority", with("host: A.test"), nil},
		{"Host unlike :authority", with("host: b.test"), errHost},
		{"two Hosts", append(without(get, ":authority"), "host: a.test", "host: a.test"), errHost},
		{"empty :authority", append(without(get, ":authority"), ":authority: "), errPseudo},
		{":authority with userinfo", append(without(get, ":authority"), ":authority: u@a.test"), errPseudo},
		{":authority with a space", append(without(get, ":authority"), ":authority: a b"), errPseudo},
		{"empty :path", append(without(get, ":path"), ":path: "), errPseudo},
		{"absolute :path", append(without(get, ":path"), ":path: http://b.test/"), errPseudo},
		{":path without a slash", append(without(get, ":path"), ":path: a"), errPseudo},
		{":path with a space", append(without(get, ":path"), ":path: /a b"), errPseudo},
		{":path with a line", append(without(get, ":path"), ":path: /a HTTP/1.1\r\nx: y"), errPseudo},
		{"GET *", append(without(get, ":path"), ":path: *"), errPseudo},
		{"OPTIONS *", []string{":method: OPTIONS", ":scheme: https", ":path: *", ":authority: a.test"}, nil},
		{":scheme ftp", append(without(get, ":scheme"), ":scheme: ftp"), errPseudo},
		{":method that is no token", append(without(get, ":method"), ":method: G T"), errPseudo},
		{"long :method", append(without(get, ":method"), ":method: "+strings.Repeat("G", 33)), errPseudo},
		{"CONNECT", []string{":method: CONNECT", ":authority: a.test:443"}, nil},
		{"CONNECT with a path", []string{":method: CONNECT", ":authority: a.test:443", ":path: /", ":scheme: https"}, errMissing},
		{"CONNECT to nowhere", []string{":method: CONNECT"}, errMissing},
		{"CONNECT with a length", []string{":method: CONNECT", ":authority: a.test:443", "content-length: 0"}, errConnect},
		{"extended CONNECT that was not announced", []string{":method: CONNECT", ":protocol: websocket", ":scheme: https", ":path: /", ":authority: a.test"}, errMissing},
		{":path of 16 KiB", append(without(get, ":path"), ":path: /"+strings.Repeat("a", http1.MaxTarget-1)), nil},
		{":path of 16 KiB and a byte", append(without(get, ":path"), ":path: /"+strings.Repeat("a", http1.MaxTarget)), http1.ErrTarget},
		{"100 fields, Host among them", with(numbered(http1.MaxFields - 1)...), nil},
		{"101 fields", with(numbered(http1.MaxFields)...), http1.ErrHead},
		{"1,000 fields", with(numbered(1000)...), http1.ErrHead},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := readRequest(t, Config{}, new(Request), c.fields...); !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
		})
	}
}

func numbered(n int) (fields []string) {
	for i := range n {
		fields = append(fields, fmt.Sprintf("x-%d: v", i))
	}
	return fields
}

// Guarantee: the limit on the size of a head is the same as in HTTP/1.1, to the byte.
func TestHeadSize(t *testing.T) {
	for _, more := range []int{0, 1} {
		const line = "GET / HTTP/1.1\r\n" + "host: a.test\r\n" + "x-a: \r\n" + "\r\n"
		value := strings.Repeat("a", http1.MaxHead-len(line)+more)
		text := "GET / HTTP/1.1\r\nhost: a.test\r\nx-a: " + value + "\r\n\r\n"
		_, want := new(http1.RequestParser).Parse([]byte(text), new(http1.Request))
		if err := readRequest(t, Config{}, new(Request), append(get[:4:4], "x-a: "+value)...); !errors.Is(err, want) {
			t.Errorf("a head of %d bytes: got error %v, want %v as over HTTP/1.1", len(text), err, want)
		}
	}
}

// Guarantee: the part of a too large head that was read is available, so that the response can
// depend on it.
func TestPartOfALargeHead(t *testing.T) {
	var r Request
	err := readRequest(t, Config{}, &r, append(append(post[:4:4], "content-type: application/grpc"), numbered(200)...)...)
	if got := fieldLines(r.Text, r.Fields()); !errors.Is(err, http1.ErrHead) || !strings.HasPrefix(got, "host: a.test | content-type: application/grpc | ") {
		t.Errorf("got %q, error %v", got, err)
	}
	err = readRequest(t, Config{}, &r, ":method: POST", ":scheme: https", ":path: /"+strings.Repeat("a", http1.MaxTarget), ":authority: a.test", "content-type: application/grpc")
	if got := fieldLines(r.Text, r.Fields()); !errors.Is(err, http1.ErrTarget) || got != "host: a.test | content-type: application/grpc" {
		t.Errorf("got %q, error %v", got, err)
	}
}

// Guarantee: several cookie fields become one field with all values in their order, however many
// there are and wherever they stand. Other fields keep their order.
func TestCookiesAreJoined(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		fields, values, others := append([]string{}, get...), []string(nil), []string{"host: a.test"}
		for i := range r.IntN(150) {
			if other := fmt.Sprintf("x-%d: v%d", i, i); r.IntN(3) == 0 && len(others) < 90 {
				fields, others = append(fields, other), append(others, other)
				continue
			}
			v := strings.Repeat("c", r.IntN(5)) + fmt.Sprintf("%d=%d", i, i)
			fields, values = append(fields, "cookie: "+v), append(values, v)
		}
		var req Request
		if err := readRequest(t, Config{}, &req, fields...); err != nil {
			t.Fatalf("%q: %v", fields, err)
		}
		var rest []string
		cookies := ""
		for _, f := range strings.Split(fieldLines(req.Text, req.Fields()), " | ") {
			if v, is := strings.CutPrefix(f, "cookie: "); is {
				cookies += v
			} else {
				rest = append(rest, f)
			}
		}
		if cookies != strings.Join(values, "; ") || strings.Join(rest, "\n") != strings.Join(others, "\n") {
			t.Fatalf("%q\ngot cookies %q, others %q", fields, cookies, rest)
		}
		sameAsHTTP1(t, &req)
	}
}

// sameAsHTTP1 compares a head with what package http1 reads from its text.
func sameAsHTTP1(t *testing.T, r *Request) {
	t.Helper()
	start := r.End - len("\r\n")
	if n := len(r.Fields()); n > 0 {
		start = int(r.Fields()[0].Name.Start)
	}
	text := append([]byte(fmt.Sprintf("%s %s HTTP/1.1\r\n", r.Method.Of(r.Text), r.Target.Of(r.Text))), r.Text[start:r.End]...)
	var h http1.Request
	if done, err := new(http1.RequestParser).Parse(text, &h); !done || err != nil {
		t.Fatalf("%q: not a whole head of HTTP/1.1: %v", text, err)
	}
	got := fmt.Sprint(fieldLines(r.Text, r.Fields()), ids(r.Fields()), r.ContentLength(), r.WantsTrailers(), r.ExpectsContinue(), r.Named(), r.KeepAlive(), r.Minor)
	want := fmt.Sprint(fieldLines(text, h.Fields()), ids(h.Fields()), h.ContentLength(), h.WantsTrailers(), h.ExpectsContinue(), h.Named(), h.KeepAlive(), h.Minor)
	if got != want || !bytes.Equal(r.Method.Of(r.Text), h.Method.Of(text)) || !bytes.Equal(r.Target.Of(r.Text), h.Target.Of(text)) {
		t.Fatalf("%q\ngot:  %s\nwant: %s", text, got, want)
	}
}

func ids(fields []http1.Field) (names []http1.Name) {
	for _, f := range fields {
		names = append(names, f.ID)
	}
	return names
}

// Guarantee: a head has the form of a head over HTTP/1.1, so that everything that reads or copies
// heads works with it: package http1 reads the same head in its text.
func TestHeadIsThatOfHTTP1(t *testing.T) {
	pool := []string{"accept: */*", "x-a: b", "te: trailers", "expect: 100-continue", "content-length: 12", "authorization: Bearer kg_x", "via: 1.1 a",
		"x-forwarded-for: 1.2.3.4", "user-agent: test", "host: a.test", "x_request_id: 1", "content_length: 1", "trailer: x-t", "cookie: a=1", "x-empty: "}
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		fields := append([]string{}, post...)
		r.Shuffle(4, func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		for _, i := range r.Perm(len(pool))[:r.IntN(len(pool))] {
			fields = append(fields, pool[i])
		}
		var req Request
		if err := readRequest(t, Config{}, &req, fields...); err != nil {
			t.Fatalf("%q: %v", fields, err)
		}
		if wantUnknown := req.ContentLength() < 0; req.Chunked() != wantUnknown || !req.HasBody() {
			t.Fatalf("%q: got chunked %v, body %v", fields, req.Chunked(), req.HasBody())
		}
		sameAsHTTP1(t, &req)
	}
}

// Guarantee: an extended CONNECT reads as the equivalent GET with Upgrade of HTTP/1.1.
func TestExtendedConnect(t *testing.T) {
	var r Request
	err := readRequest(t, Config{ExtendedConnect: true}, &r, ":method: CONNECT", ":protocol: websocket", ":scheme: https", ":path: /chat", ":authority: a.test",
		"sec-websocket-version: 13")
	if err != nil {
		t.Fatal(err)
	}
	if m, p := string(r.Method.Of(r.Text)), string(r.Target.Of(r.Text)); m != "GET" || p != "/chat" || string(r.Protocol.Of(r.Text)) != "websocket" || !r.Upgrade() || r.HasBody() {
		t.Errorf("got %s %s, protocol %q, upgrade %v, body %v", m, p, r.Protocol.Of(r.Text), r.Upgrade(), r.HasBody())
	}
	if got, want := fieldLines(r.Text, r.Fields()), "host: a.test | upgrade: websocket | sec-websocket-version: 13"; got != want {
		t.Errorf("got fields %q, want %q", got, want)
	}
	for _, missing := range []string{":scheme", ":path", ":authority"} {
		fields := without([]string{":method: CONNECT", ":protocol: websocket", ":scheme: https", ":path: /chat", ":authority: a.test"}, missing)
		if err := readRequest(t, Config{ExtendedConnect: true}, &r, fields...); !errors.Is(err, errMissing) {
			t.Errorf("without %s: got error %v, want %v", missing, err, errMissing)
		}
	}
	for _, length := range []string{"0", "320"} {
		fields := []string{":method: CONNECT", ":protocol: websocket", ":scheme: https", ":path: /chat", ":authority: a.test", "content-length: " + length}
		if err := readRequest(t, Config{ExtendedConnect: true}, &r, fields...); !errors.Is(err, errConnect) {
			t.Errorf("with content-length %s: got error %v, want %v", length, err, errConnect)
		}
	}
	if err := readRequest(t, Config{ExtendedConnect: true}, &r, append(get[:4:4], ":protocol: websocket")...); !errors.Is(err, errMissing) {
		t.Errorf("GET with :protocol: got error %v, want %v", err, errMissing)
	}
	if err := readRequest(t, Config{}, &r, get...); err != nil || r.Protocol.Len() != 0 || r.Upgrade() {
		t.Errorf("the next request: got protocol %q, upgrade %v, error %v", r.Protocol.Of(r.Text), r.Upgrade(), err)
	}
}

// Guarantee: a field that must not be compressed on any hop is marked.
func TestSensitiveFields(t *testing.T) {
	c := NewConn(Config{})
	s := newClient()
	block := s.encode(get...) + "\x10\x03x-s\x01v" + "\x00\x03x-t\x01v" // never indexed, and not indexed
	c.Feed(0, s.frame(FrameHeaders, FlagEndHeaders, 1, block).Bytes())
	var ev Event
	var r Request
	for c.Next(&ev) {
		if ev.Kind == Head {
			if err := c.ReadRequest(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range r.Fields() {
		if want := string(f.Name.Of(r.Text)) == "x-s"; f.Sensitive != want {
			t.Errorf("%s: got Sensitive %v, want %v", f.Name.Of(r.Text), f.Sensitive, want)
		}
	}
}

// Guarantee: a head or trailers that the owner does not read leave the connection usable: an unread
// head resets its stream, unread trailers do not.
func TestUnreadHeads(t *testing.T) {
	c := NewConn(Config{})
	s := newClient().post(1).head(3, 0, append(post, "x-a: long enough to be indexed")...)
	c.Feed(0, s.Bytes())
	var ev Event
	for c.Next(&ev) {
		if ev.Kind == Head && ev.Stream == 1 {
			if err := c.ReadRequest(new(Request)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Reset()
	c.Feed(0, s.head(1, FlagEndStream, "x-b: long enough to be indexed").head(5, 0, append(post, "x-a: long enough to be indexed", "x-b: long enough to be indexed")...).Bytes())
	var r Request
	for c.Next(&ev) {
		if ev.Kind == Head {
			if err := c.ReadRequest(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := fieldLines(r.Text, r.Fields()), "host: a.test | x-a: long enough to be indexed | x-b: long enough to be indexed"; got != want || c.Err() != nil {
		t.Errorf("got %q, error %v; want %q", got, c.Err(), want)
	}
	if err := c.ReadRequest(&r); err == nil {
		t.Error("reading twice: got no error")
	}
	if frames := parseFrames(c.Take(nil)); Code(frames[len(frames)-1].payload[3]) != InternalError || frames[len(frames)-1].Stream != 3 {
		t.Errorf("got %v last, want RST_STREAM of stream 3", frames[len(frames)-1])
	}
}
