package h1

import (
	"strings"
	"testing"
)

// Guarantee: the upstream receives the client's fields unchanged, in their order and
// spelling, without the hop-by-hop fields, the fields that Connection names, the gateway's own
// fields in any spelling, and the key. The gateway's own fields follow.
func TestRequestFields(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = upstreamOf(t, always(okResponse))
		s.upstream += "/base/"
		s.headers = map[string]string{"X-Secret": "s3cret"}
		g := start(t, s)
		c := g.dial(t)
		c.send("GET /p%41th?a=1&api_key=x&b=2 HTTP/1.1\r\nKEY\r\naCCEPT: text/*\r\nX-Keygate-Key-Id: evil\r\nx_keygate_owner: evil\r\nX_Request_Id: evil\r\n" +
			"X-Forwarded-For: 9.9.9.9\r\nx-forwarded_proto: evil\r\nForwarded: evil\r\nx_secret: evil\r\nConnection: keep-alive, X-Named , Via\r\nX-Named: evil\r\n" +
			"Keep-Alive: evil\r\nProxy-Authorization: evil\r\nTE: gzip, trailers\r\nHTTP2-Settings: evil\r\nVia: 1.0 first\r\nX-Empty:\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: a=b\r\ncOOKIE: c=1;keygate_session=evil; d=2\r\nCookie: __Host-keygate_session=evil\r\n\r\n")
		c.wantStatus("200")
		got := <-heads
		before, after, _ := strings.Cut(got, "\r\nX-Request-Id: req_")
		_, after, _ = strings.Cut(after, "\r\n")
		host := strings.TrimSuffix(strings.TrimPrefix(s.upstream, "http://"), "/base/")
		if want := "GET /base/p%41th?a=1&b=2 HTTP/1.1\r\nHost: " + host + "\r\naCCEPT: text/*\r\nVia: 1.0 first\r\nX-Empty:\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: a=b\r\ncOOKIE: c=1; d=2"; before != want {
			t.Errorf("client's fields: got\n%s\nwant\n%s", before, want)
		}
		if want := "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: api.test\r\nX-Forwarded-Proto: http\r\nVia: 1.1 keygate-test\r\nX-Keygate-Gateway-Id: " + gatewayID +
			"\r\nX-Keygate-Key-Id: " + keyID + "\r\nX-Keygate-Key-Owner: Ann <ann@example.com>\r\nX-Secret: s3cret\r\nTE: trailers\r\nConnection: TE"; after != want {
			t.Errorf("gateway's fields: got\n%s\nwant\n%s", after, want)
		}
	})
}

// Guarantee: a trusted proxy's X-Forwarded-* fields are forwarded, with its own address
// appended to X-Forwarded-For.
func TestTrustedProxyFields(t *testing.T) {
	t.Parallel()
	var heads chan string
	s := setup{limit: "1000/s", trusted: true}
	s.upstream, heads = upstreamOf(t, always(okResponse))
	c := start(t, s).dial(t)
	c.send("GET /a HTTP/1.1\r\nKEY\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nx-forwarded-for: 8.8.8.8\r\nX-Forwarded-Prefix: /x\r\n\r\n")
	c.wantStatus("200")
	got := <-heads
	for _, want := range []string{"X-Forwarded-For: 9.9.9.9, 8.8.8.8, 127.0.0.1\r\n", "X-Forwarded-Proto: https\r\n", "X-Forwarded-Host: api.test\r\n", "X-Forwarded-Prefix: /x\r\n"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("got\n%s\nwant %q in it once", got, want)
		}
	}
}

// Guarantee: Authorization is forwarded unless it contains a gateway key, and no gateway
// key reaches the upstream.
func TestAuthorizationOfUpstream(t *testing.T) {
	t.Parallel()
	var heads chan string
	s := setup{limit: "1000/s"}
	s.upstream, heads = upstreamOf(t, always(okResponse))
	g := start(t, s)
	for request, passes := range map[string]bool{
		"GET /public/a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token\r\n\r\n":                    true,
		"GET /public/a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic x\r\n\r\n":                         true,
		"GET /public/a HTTP/1.1\r\nHost: a\r\nAuthorization: bearer kg_mistyped\r\n\r\n":              false,
		"GET /public/a HTTP/1.1\r\nHost: a\r\nAuthorization: BEARER " + g.key + "\r\n\r\n":            false,
		"GET /a?api_key=" + g.key + " HTTP/1.1\r\nHost: a\r\nAuthorization: Basic x\r\n\r\n":          true,
		"GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\n\r\n":                   false,
		"GET http://b/a HTTP/1.1\r\nHost: a\r\nAuthorization:\tBearer\t" + g.key + "\r\nX: y\r\n\r\n": false,
	} {
		c := g.dial(t)
		c.send(request)
		c.wantStatus("200")
		got := <-heads
		wantNotIn(t, got, g.key)
		if passes {
			wantIn(t, got, "uthorization")
		} else {
			wantNotIn(t, got, "uthorization")
		}
	}
}
