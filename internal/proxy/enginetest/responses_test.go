package enginetest_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// responseCase is a response of an upstream, and what a client receives of it.
type responseCase struct {
	name   string
	method string // "" means GET
	send   string // one more field of the request, or ""
	reply  reply

	status   string              // "" means the reply's; "502" the gateway's own
	interim  []map[string]string // fields, as head.wantFields checks them
	fields   map[string]string
	body     string            // "=" is the reply's body
	trailers map[string]string // all of them
	broken   bool
	either   bool   // broken, or a 502, if the head of the response did not go ahead
	only     string // "HTTP/1.1" or "HTTP/2": the version of upstreams that can send this response
}

const wantsTrailers = "TE: trailers"

// responseCases are the rules of contract 4.2 to 4.4 for what an upstream responds.
func responseCases() []responseCase {
	large := strings.Repeat("0123456789abcdef", 4_000) // how much an upstream over HTTP/2 may send at once
	malformed := func(name, text string) responseCase {
		return responseCase{name: name, reply: reply{http1: text}, status: "502", only: "HTTP/1.1"}
	}
	malformedOverHTTP2 := func(name string, fields ...string) responseCase {
		return responseCase{name: name, reply: reply{http2: func(s *scripted, id uint32) { s.head(id, true, fields...) }}, status: "502", only: "HTTP/2"}
	}
	return []responseCase{
		// Bodies and their lengths.
		{name: "a length", reply: reply{body: "hello"}, body: "=", fields: map[string]string{"content-length": "5", "transfer-encoding": ""}},
		{name: "a length of 0", reply: reply{}, fields: map[string]string{"content-length": "0"}},
		{name: "no length", reply: reply{framing: byChunks, body: "hello"}, body: "=", fields: map[string]string{"content-length": ""}},
		{name: "no length and no data", reply: reply{framing: byChunks}},
		{name: "the end of the connection", reply: reply{framing: byClose, body: "hello"}, body: "=", fields: map[string]string{"content-length": ""}},
		{name: "a large body", reply: reply{body: large}, body: "="},
		{name: "a large body without a length", reply: reply{framing: byChunks, body: large}, body: "="},
		{name: "a body that is compressed", send: "Accept-Encoding: gzip", reply: reply{fields: []string{"Content-Encoding: gzip", "ETag: \"a\"", "Vary: Accept-Encoding"}, body: "\x1f\x8b\x08\x00\x00"}, body: "=",
			fields: map[string]string{"content-encoding": "gzip", "etag": `"a"`, "content-length": "5"}},
		{name: "a part of a body", send: "Range: bytes=0-4", reply: reply{status: 206, fields: []string{"Content-Range: bytes 0-4/9"}, body: "hello"}, body: "=", fields: map[string]string{"content-range": "bytes 0-4/9"}},
		{name: "HEAD with a length", method: "HEAD", reply: reply{framing: noFraming, fields: []string{"Content-Length: 55"}}, fields: map[string]string{"content-length": "55", "transfer-encoding": ""}},
		{name: "HEAD without a length", method: "HEAD", reply: reply{framing: noFraming}, fields: map[string]string{"content-length": "", "transfer-encoding": ""}},
		{name: "HEAD with a coding", method: "HEAD", reply: reply{framing: noFraming, http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", stays: true}, fields: map[string]string{"content-length": "", "transfer-encoding": ""}, only: "HTTP/1.1"},
		{name: "204", reply: reply{status: 204, framing: noFraming}, fields: map[string]string{"content-length": "", "transfer-encoding": ""}},
		{name: "204 with a length", reply: reply{status: 204, framing: noFraming, http1: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", stays: true}, fields: map[string]string{"content-length": ""}, only: "HTTP/1.1"},
		{name: "304 with a length", reply: reply{status: 304, framing: noFraming, fields: []string{"Content-Length: 55", "ETag: \"a\""}}, fields: map[string]string{"content-length": "55", "etag": `"a"`}},
		{name: "304 without a length", reply: reply{status: 304, framing: noFraming}, fields: map[string]string{"content-length": "", "transfer-encoding": ""}},
		{name: "205", reply: reply{status: 205}, fields: map[string]string{"content-length": "0"}},

		// Statuses.
		{name: "404 with a body", reply: reply{status: 404, body: "not here"}, body: "="},
		{name: "401 of the upstream", reply: reply{status: 401, fields: []string{"WWW-Authenticate: Basic realm=\"a\""}, body: "no"}, body: "=", fields: map[string]string{"www-authenticate": `Basic realm="a"`}},
		{name: "429 of the upstream", reply: reply{status: 429, fields: []string{"Retry-After: 77"}, body: "slow"}, body: "=", fields: map[string]string{"retry-after": "77"}},
		{name: "503 of the upstream", reply: reply{status: 503, fields: []string{"Retry-After: 77"}, body: "busy"}, body: "=", fields: map[string]string{"retry-after": "77"}},
		{name: "502 of the upstream", reply: reply{status: 599, body: "theirs"}, body: "="},
		{name: "a status that nobody knows", reply: reply{status: 299, body: "hello"}, body: "="},
		{name: "a redirect", reply: reply{status: 307, fields: []string{"Location: https://example.com/a"}}, fields: map[string]string{"location": "https://example.com/a"}},

		// Fields.
		{name: "fields that pass", reply: reply{fields: []string{"Server: theirs", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "X-Custom: 1", "X-Custom: 2", "X_Under: 3", "Set-Cookie: a=1", "Set-Cookie: b=2", "Via: 1.1 cdn", "X-Keygate-Other: 1", "X-RateLimit-Limit-Tokens: 5", "Age: 3", "Cache-Control: no-store"}},
			fields: map[string]string{"server": "theirs", "date": "Thu, 01 Jan 1970 00:00:00 GMT", "x-custom": "1 | 2", "x_under": "3", "set-cookie": "a=1 | b=2", "via": "1.1 cdn", "x-ratelimit-limit-tokens": "5", "age": "3", "cache-control": "no-store"}},
		{name: "fields that the gateway replaces", reply: reply{fields: []string{"X-Request-Id: theirs", "X_Request_Id: theirs", "X-RateLimit-Limit: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 0", "RateLimit: 0", "RateLimit-Policy: 0", "Alt-Svc: h3", "Set-Cookie: keygate_session=1"}},
			fields: map[string]string{"x_request_id": "", "alt-svc": "", "set-cookie": ""}},
		{name: "fields of the connection", reply: reply{http1: "HTTP/1.1 200 OK\r\nConnection: close, X-Private, content-length, via\r\nx-private: 1\r\nVia: 1.1 cdn\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nTE: trailers\r\nTrailer: X-T\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"},
			body: "hello", fields: map[string]string{"x-private": "", "via": "1.1 cdn", "keep-alive": "", "proxy-authenticate": "", "proxy-connection": "", "te": "", "trailer": "", "upgrade": "", "connection": "", "content-length": "5"}, only: "HTTP/1.1"},
		{name: "no fields", reply: reply{}, fields: map[string]string{"server": "", "content-type": "", "via": ""}},
		{name: "HTTP/1.0", reply: reply{http1: "HTTP/1.0 200 OK\r\n\r\nhello"}, body: "hello", fields: map[string]string{"connection": "", "content-length": ""}, only: "HTTP/1.1"},
		{name: "no reason", reply: reply{http1: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", stays: true}, only: "HTTP/1.1"},
		{name: "bytes beyond ASCII", reply: reply{fields: []string{"X-Latin: \xe9", "X-UTF: é"}}, fields: map[string]string{"x-latin": "\xe9", "x-utf": "é"}},
		{name: "an empty value", reply: reply{fields: []string{"X-Empty: ", "X-Full: 1"}}, fields: map[string]string{"x-full": "1"}},

		// Interim responses.
		{name: "103", reply: reply{interim: [][]string{{"Link: </a.css>", "X-Request-Id: theirs", "Alt-Svc: h3", "Set-Cookie: keygate_session=1"}}, body: "hello"}, body: "=",
			interim: []map[string]string{{"link": "</a.css>", "x-request-id": "", "alt-svc": "", "set-cookie": ""}}, fields: map[string]string{"link": ""}},
		{name: "several 103s", reply: reply{interim: [][]string{{"Link: </a>"}, {"Link: </b>"}, {}}}, interim: []map[string]string{{"link": "</a>"}, {"link": "</b>"}, {"link": ""}}},
		{name: "many 103s", reply: reply{interim: slices.Repeat([][]string{{"Link: </a>"}}, 64)}, interim: slices.Repeat([]map[string]string{{"link": "</a>"}}, 64)},
		{name: "103 before 204", reply: reply{interim: [][]string{{"Link: </a>"}}, status: 204, framing: noFraming}, interim: []map[string]string{{"link": "</a>"}}},
		{name: "103 before HEAD", method: "HEAD", reply: reply{interim: [][]string{{"Link: </a>"}}, framing: noFraming}, interim: []map[string]string{{"link": "</a>"}}},
		{name: "a 100 that nobody awaits", reply: reply{http1: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "100")
			s.head(id, true, ":status", "200")
		}, stays: true}, interim: []map[string]string{{}}},
		{name: "102 and 199", reply: reply{http1: "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "102")
			s.head(id, false, ":status", "199")
			s.head(id, true, ":status", "200")
		}, stays: true}, interim: []map[string]string{{}, {}}},
		{name: "a length in a 103", reply: reply{http1: "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nConnection: X-P\r\nX-P: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", stays: true}, interim: []map[string]string{{"content-length": "", "x-p": "", "connection": ""}}, only: "HTTP/1.1"},

		// Trailers.
		{name: "trailers", send: wantsTrailers, reply: reply{framing: byChunks, body: "hello", fields: []string{"Trailer: X-Sum"}, trailers: []string{"X-Sum: 1", "X-Late: 2"}}, body: "=", trailers: map[string]string{"x-sum": "1", "x-late": "2"}, fields: map[string]string{"trailer": "X-Sum"}},
		{name: "trailers without a body", send: wantsTrailers, reply: reply{framing: byChunks, trailers: []string{"X-Sum: 1"}}, trailers: map[string]string{"x-sum": "1"}},
		{name: "trailers for nobody", reply: reply{framing: byChunks, body: "hello", fields: []string{"Trailer: X-Sum"}, trailers: []string{"X-Sum: 1"}}, body: "=", fields: map[string]string{"trailer": ""}, trailers: map[string]string{}},
		{name: "trailers that do not pass", send: wantsTrailers, reply: reply{framing: byChunks, body: "hello", trailers: []string{"X-Sum: 1", "X-Request-Id: theirs", "X-RateLimit-Limit: 0", "RateLimit: 0", "X-Keygate-Key-Id: 0", "Content-Length: 5", "Host: a",
			"Authorization: a", "WWW-Authenticate: a", "Set-Cookie: a=1", "Alt-Svc: h3", "Content-Type: a", "Content-Encoding: gzip", "Via: 1.1 a", "Date: a", "Location: /"}}, body: "=", trailers: map[string]string{"x-sum": "1"}},
		{name: "trailers after a length", send: wantsTrailers, reply: reply{body: "hello", fields: []string{"Trailer: X-Sum"}, trailers: []string{"X-Sum: 1"}}, body: "=", trailers: map[string]string{"x-sum": "1"}, only: "HTTP/2"},
		{name: "trailers after a length of 0", send: wantsTrailers, reply: reply{fields: []string{"Trailer: X-Sum"}, trailers: []string{"X-Sum: 1"}}, trailers: map[string]string{"x-sum": "1"}, only: "HTTP/2"},
		{name: "trailers after a length, for nobody", reply: reply{body: "hello", trailers: []string{"X-Sum: 1"}}, body: "=", fields: map[string]string{"content-length": "5"}, trailers: map[string]string{}, only: "HTTP/2"},

		// Bodies that are broken off.
		{name: "broken off within a length", reply: reply{body: "hello", breaks: true}, body: "=", broken: true},
		{name: "broken off within chunks", reply: reply{framing: byChunks, body: "hello", breaks: true}, body: "=", broken: true},
		{name: "broken off instead of closed", reply: reply{framing: byClose, body: "hello", breaks: true}, broken: true, body: "?"},
		{name: "closed within a chunk", reply: reply{http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello"}, body: "hello", broken: true, only: "HTTP/1.1"},
		{name: "closed within trailers", reply: reply{http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n"}, body: "hello", broken: true, only: "HTTP/1.1"},
		{name: "a malformed chunk", reply: reply{http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"}, body: "hello", broken: true, only: "HTTP/1.1"},
		{name: "a malformed trailer", reply: reply{http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX T: 1\r\n\r\n"}, body: "hello", broken: true, only: "HTTP/1.1"},
		{name: "reset without an error", reply: reply{http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200")
			_ = s.WriteData(id, false, []byte("hello"))
			_ = s.WriteRSTStream(id, http2.ErrCodeNo)
		}}, body: "hello", broken: true, only: "HTTP/2"},
		{name: "a body that is too short", reply: reply{http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200", "content-length", "6")
			_ = s.WriteData(id, true, []byte("hello"))
		}}, body: "?", either: true, only: "HTTP/2"},
		{name: "a body that is too long", reply: reply{http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200", "content-length", "4")
			_ = s.WriteData(id, true, []byte("hello"))
		}}, body: "?", either: true, only: "HTTP/2"},
		{name: "reset after the end", reply: reply{http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200")
			_ = s.WriteData(id, true, []byte("hello"))
			_ = s.WriteRSTStream(id, http2.ErrCodeNo)
		}}, body: "hello", only: "HTTP/2"},
		{name: "a malformed trailer over HTTP/2", send: wantsTrailers, reply: reply{http2: func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200")
			_ = s.WriteData(id, false, []byte("hello"))
			s.head(id, true, ":status", "200")
		}}, body: "?", either: true, only: "HTTP/2"},
		{name: "bytes after the response", reply: reply{http1: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello", stays: true}, body: "he", only: "HTTP/1.1"},
		{name: "a body after 204", reply: reply{status: 204, framing: noFraming, http1: "HTTP/1.1 204 No Content\r\n\r\nhello", stays: true}, only: "HTTP/1.1"},

		// Responses that are not well formed.
		malformed("another protocol", "SSH-2.0-OpenSSH\r\n\r\n"),
		malformed("HTTP/2 in a status line", "HTTP/2.0 200 OK\r\n\r\n"),
		malformed("an empty line before the status", "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		malformed("status 99", "HTTP/1.1 099 What\r\n\r\n"),
		malformed("status 600", "HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n"),
		malformed("status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
		malformed("a bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
		malformed("a bare CR", "HTTP/1.1 200 OK\r\nX-A: a\rb\r\nContent-Length: 0\r\n\r\n"),
		malformed("NUL", "HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n"),
		malformed("a control byte", "HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 0\r\n\r\n"),
		malformed("a space before the colon", "HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length: 0\r\n\r\n"),
		malformed("a folded line", "HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 0\r\n\r\n"),
		malformed("no colon", "HTTP/1.1 200 OK\r\nX-A\r\nContent-Length: 0\r\n\r\n"),
		malformed("an empty name", "HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 0\r\n\r\n"),
		malformed("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhel"),
		malformed("one length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhe"),
		malformed("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhe"),
		malformed("a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhe"),
		malformed("a length that is no number", "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhe"),
		malformed("a length of 20 digits", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhe"),
		malformed("an empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhe"),
		malformed("a length and a coding", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n"),
		malformed("gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
		malformed("chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		malformed("identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhe"),
		malformed("a 101 that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
		malformed("a 103 alone", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
		malformed("half of a head", "HTTP/1.1 200 OK\r\nContent-Le"),
		malformedOverHTTP2("no status", "a", "b"),
		malformedOverHTTP2("two statuses", ":status", "200", ":status", "200"),
		malformedOverHTTP2("101", ":status", "101"),
		malformedOverHTTP2("status 600 over HTTP/2", ":status", "600"),
		malformedOverHTTP2("status 99 over HTTP/2", ":status", "099"),
		malformedOverHTTP2("status of two digits over HTTP/2", ":status", "20"),
		malformedOverHTTP2("a 103 that ends", ":status", "103"),
		malformedOverHTTP2("a connection", ":status", "200", "connection", "close"),
		malformedOverHTTP2("a coding", ":status", "200", "transfer-encoding", "chunked"),
		malformedOverHTTP2("an upper-case name", ":status", "200", "X-A", "1"),
		malformedOverHTTP2("a name with a space", ":status", "200", "x a", "1"),
		malformedOverHTTP2("a value with CRLF", ":status", "200", "x-a", "1\r\nX-B: 2"),
		malformedOverHTTP2("a value with NUL", ":status", "200", "x-a", "1\x002"),
		malformedOverHTTP2("a value with a control byte", ":status", "200", "x-a", "1\x012"),
		malformedOverHTTP2("a value with a space at its end", ":status", "200", "x-a", "1 "),
		malformedOverHTTP2("two lengths over HTTP/2", ":status", "200", "content-length", "0", "content-length", "0"),
		malformedOverHTTP2("a length that is no number over HTTP/2", ":status", "200", "content-length", "x"),
		malformedOverHTTP2("a length without a body", ":status", "200", "content-length", "5"),
		malformedOverHTTP2("a pseudo-header of requests", ":status", "200", ":path", "/"),
		malformedOverHTTP2("a pseudo-header after a field", "x-a", "1", ":status", "200"),
		{name: "reset before the head", reply: reply{http2: func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeInternal) }}, status: "502", only: "HTTP/2"},
		{name: "data before the head", reply: reply{http2: func(s *scripted, id uint32) { _ = s.WriteData(id, true, []byte("hello")) }}, status: "502", only: "HTTP/2"},
	}
}

// Guarantee: contract 4.2 to 4.4. What a client receives of a response does not depend on the versions of
// HTTP, nor on TLS, on either side: the same fields, body, trailers and interim responses, no regular end of
// a response that was broken off, and a 502 for a malformed response. The next response on the connection
// belongs to the next request.
func TestResponsesOverAll(t *testing.T) {
	t.Parallel()
	cases := responseCases()
	replies := make([]reply, len(cases))
	for i := range cases {
		replies[i] = cases[i].reply
	}
	overAll(t, replies, func(t *testing.T, up *replying, dial func() *caller) {
		version := "HTTP/1.1"
		if up.isHTTP2 {
			version = "HTTP/2"
		}
		c := dial()
		for i := range cases {
			want := &cases[i]
			if want.only != "" && want.only != version || up.isHTTP2 && want.reply.http1 != "" && want.reply.http2 == nil {
				continue
			}
			t.Run(want.name, func(t *testing.T) {
				c.t = t
				method, fields := "GET", []string(nil)
				if want.method != "" {
					method = want.method
				}
				if want.send != "" {
					fields = []string{want.send}
				}
				got := c.exchange(method, "/"+strconv.Itoa(i), fields...)
				want.check(t, &got)
				if got.broken && c.http1 != nil {
					c = dial()
				}
				c.t = t
				if next := c.exchange("GET", "/next"); next.head.status() != "200" || next.body != "next" || next.broken {
					t.Errorf("the next request got %+v, want its own response", next)
					c = dial()
				}
			})
		}
	})
}

// check checks what a client received.
func (c *responseCase) check(t *testing.T, got *received) {
	t.Helper()
	status := c.status
	switch {
	case c.either && got.broken:
		return
	case c.either:
		status = "502"
	}
	if got.broken != c.broken {
		t.Errorf("got broken %v, want %v: %+v", got.broken, c.broken, got)
		return
	}
	if status == "" {
		status = strconv.Itoa(max(c.reply.status, 200))
	}
	if got.head.text == "" && c.broken { // the gateway had nothing of it
		return
	}
	if got.head.status() != status {
		t.Errorf("got\n%s\n%s\nwant status %s", got.head.text, got.body, status)
		return
	}
	if status == "502" {
		got.head.wantFields(t, map[string]string{"content-type": "application/json"})
		if !strings.Contains(got.body, `"error":"upstream_unreachable"`) {
			t.Errorf("got body %q, want an error upstream_unreachable", got.body)
		}
	} else {
		want := c.body
		if want == "=" {
			want = c.reply.body
		}
		if want != "?" && got.body != want {
			t.Errorf("got a body of %d bytes, %.40q, want %d, %.40q", len(got.body), got.body, len(want), want)
		}
	}
	c.checkOwn(t, got)
	got.head.wantFields(t, c.fields)
	if status == "502" {
		return
	}
	if len(got.interim) != len(c.interim) {
		t.Errorf("got %d interim responses, want %d", len(got.interim), len(c.interim))
	} else {
		for i, want := range c.interim {
			got.interim[i].wantFields(t, want)
		}
	}
	trailers := map[string]string{}
	for name, values := range got.trailers {
		trailers[name] = strings.Join(values, " | ")
	}
	if want := c.trailers; len(trailers)+len(want) > 0 && !maps.Equal(trailers, want) {
		t.Errorf("got trailers %v, want %v", trailers, want)
	}
}

// checkOwn checks what every response has.
func (c *responseCase) checkOwn(t *testing.T, got *received) {
	t.Helper()
	for _, name := range []string{"x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy", "date"} {
		if values := got.head.fields[name]; len(values) != 1 || values[0] == "theirs" || values[0] == "0" && name != "x-ratelimit-remaining" {
			t.Errorf("%s: got %q, want one value, the gateway's", name, values)
		}
	}
	if id := got.head.get("x-request-id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("got X-Request-Id %q, want an identifier", id)
	}
	length, coding := got.head.fields["content-length"], got.head.fields["transfer-encoding"]
	if len(length)+len(coding) > 1 {
		t.Errorf("got lengths %q and codings %q, want one at most", length, coding)
	}
	if len(length) == 1 && c.method != "HEAD" && c.reply.status != 304 && !got.broken && length[0] != strconv.Itoa(len(got.body)) {
		t.Errorf("got Content-Length %s and a body of %d bytes", length[0], len(got.body))
	}
}
