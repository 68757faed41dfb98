package sender_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Guarantee: a delivery is one POST of the stored bytes to the URL exactly as registered,
// with the header fields of the contract and none that the HTTP library would add.
func TestRequestIsAsDocumented(t *testing.T) {
	h := newHarness(t)
	got := make(chan received, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			t.Errorf("got the method %s, want POST", r.Method)
		}
		got <- read(r)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "thank you")
	}))
	t.Cleanup(server.Close)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // must be ignored
	hook := h.endpoint(server.URL + "/a%2Fb/?team=7&x")
	raised := time.Now()
	e := h.raise(1)[0]
	h.start(h.config())
	r := <-got
	d := h.await(hook, "delivered", in(1, webhook.Delivered))[0]
	if r.Body != string(e.Payload) || r.Path != "/a%2Fb/?team=7&x" || "http://"+r.Host != server.URL {
		t.Errorf("got the request %+v, want the event's payload at the registered URL", r)
	}
	stamp, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	if err != nil || stamp < raised.Unix() || stamp > time.Now().Unix() {
		t.Errorf("got the timestamp %q, want the time of the attempt", r.Header.Get("webhook-timestamp"))
	}
	m := webhook.Message{EventID: e.ID, EventType: e.Type, DeliveryID: d.ID, Attempt: 1, Payload: e.Payload}
	want := m.Header(time.Unix(stamp, 0), webhook.Secrets{Current: testSecret})
	want["Content-Length"] = strconv.Itoa(len(e.Payload))
	for name, value := range want {
		if got := r.Header.Get(name); got != value {
			t.Errorf("got %s: %q, want %q", name, got, value)
		}
	}
	if len(r.Header) != len(want) {
		t.Errorf("got the header fields %v, want only those of %v", r.Header, want)
	}
	a := d.Attempts[0]
	if len(d.Attempts) != 1 || a.Number != 1 || a.Status != 202 || a.Error != "" || string(a.Response) != "thank you" || !d.NextAttemptAt.IsZero() {
		t.Errorf("got the delivery %+v, want one attempt of status 202 with the response \"thank you\"", d)
	}
}

// Guarantee: during the overlap of a rotation both secrets sign; after it only the new one.
func TestBothSecretsSignDuringTheOverlap(t *testing.T) {
	h := newHarness(t)
	got := make(chan received, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- read(r) }))
	t.Cleanup(server.Close)
	hook := h.endpoint(server.URL)
	s := h.start(h.config())
	for _, left := range []time.Duration{time.Hour, -time.Hour} {
		h.update(func(tx control.Tx) error {
			w, err := tx.Webhook(t.Context(), h.owner, hook)
			if err != nil {
				return err
			}
			if w.OldSecret, err = h.box.Seal([]byte("the old secret of it")); err != nil {
				return err
			}
			w.OldUntil = time.Now().Add(left)
			return tx.UpdateWebhook(t.Context(), w)
		})
		e := h.raise(1)[0]
		s.Wake()
		r := <-got
		want := ""
		if left > 0 {
			want = webhook.Sign("the old secret of it", e.Payload)
		}
		if got := r.Header.Get(webhook.FieldPreviousSignature); got != want {
			t.Errorf("with %v left of the overlap: got the previous signature %q, want %q", left, got, want)
		}
		if got := r.Header.Get(webhook.FieldSignature); got != webhook.Sign(testSecret, e.Payload) {
			t.Errorf("with %v left of the overlap: got the signature %q, want that of the new secret", left, got)
		}
	}
}

// raw serves one request on each connection: it reads the request, calls respond, and closes
// the connection. requests counts them.
func raw(t *testing.T, respond func(c *net.TCPConn)) (url string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	requests = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				requests.Add(1)
				respond(c.(*net.TCPConn))
			}()
		}
	}()
	return "http://" + l.Addr().String(), requests
}

// Guarantee: whatever a receiver sends, the attempt ends as the contract says: it reads a
// limited part of the response, keeps the first 8 KiB, and explains a failure without
// internal details.
func TestHostileReceivers(t *testing.T) {
	bomb := gzipBomb(t)
	const head = "HTTP/1.1 200 OK\r\nContent-Length: "
	for name, tc := range map[string]struct {
		respond func(c *net.TCPConn)
		status  int
		error   string // part of it; "" if there is a complete response
		kept    string // part of the response body that is kept
	}{
		"no content":  {func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") }, 204, "", ""},
		"unfinished":  {func(c *net.TCPConn) { _, _ = io.WriteString(c, head+"100\r\n\r\nonly this") }, 200, "closed before", "only this"},
		"half closed": {func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }, 0, "closed before", ""},
		"reset":       {func(c *net.TCPConn) { _ = c.SetLinger(0) }, 0, "closed before", ""},
		"reset later": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
			_ = c.SetLinger(0)
		}, 0, "response", ""},
		"no HTTP":   {func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") }, 0, "not valid HTTP", ""},
		"no status": {func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n") }, 0, "not valid HTTP", ""},
		"endless head": {func(c *net.TCPConn) {
			endless(c, "HTTP/1.1 200 OK\r\n", "X-Padding: "+strings.Repeat("x", 1000)+"\r\n")
		}, 0, "not valid HTTP", ""},
		"endless 1xx": {func(c *net.TCPConn) { endless(c, "", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") }, 0, "not valid HTTP", ""},
		"10 MiB": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, head+strconv.Itoa(10<<20)+"\r\n\r\n")
			_, _ = io.Copy(c, strings.NewReader(strings.Repeat("0123456789abcdef", 10<<20/16)))
		}, 200, "", strings.Repeat("0123456789abcdef", 512)},
		"gzip bomb": {func(c *net.TCPConn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 500 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)
		}, 500, "", string(bomb[:min(len(bomb), 8<<10)])},
		"endless chunks": {func(c *net.TCPConn) {
			endless(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nabcde\r\n")
		}, 200, "", strings.Repeat("abcde", 8<<10)[:8<<10]},
		"redirect": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
		}, 307, "redirect", ""},
		"redirect of GET": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 303 See Other\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")
		}, 303, "redirect", ""},
		"binary": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\n\x00\xff\xfe\n")
		}, 404, "", "\x00\xff\xfe\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			url, requests := raw(t, tc.respond)
			hook := h.endpoint(url)
			h.raise(1)
			h.start(h.config())
			list := h.await(hook, "there is an attempt", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
			d, a := list[0], list[0].Attempts[0]
			wantState := webhook.RetryScheduled
			if tc.status/100 == 2 && tc.error == "" {
				wantState = webhook.Delivered
			}
			if d.State != wantState || a.Status != tc.status || string(a.Response) != tc.kept {
				t.Errorf("got the state %s, status %d and %d bytes kept; want %s, %d and %d bytes",
					d.State, a.Status, len(a.Response), wantState, tc.status, len(tc.kept))
			}
			if tc.error == "" && a.Error != "" {
				t.Errorf("got the error %q, want none", a.Error)
			}
			if tc.error != "" && !strings.Contains(a.Error, tc.error) {
				t.Errorf("got the error %q, want one that contains %q", a.Error, tc.error)
			}
			if strings.Contains(a.Error, "127.0.0.1") {
				t.Errorf("the error contains the address: %q", a.Error)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("got %d requests, want 1", n)
			}
		})
	}
}

// endless writes first, and then more repeatedly until the other side closes the connection.
func endless(c *net.TCPConn, first, more string) {
	if _, err := io.WriteString(c, first); err != nil {
		return
	}
	block := []byte(strings.Repeat(more, 1+4096/len(more)))
	for {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

// gzipBomb returns 64 MiB of zeros, compressed twice.
func gzipBomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	outer := gzip.NewWriter(&out)
	inner := gzip.NewWriter(outer)
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := inner.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	if err := outer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Guarantee: deliveries to one receiver reuse connections, and a kept connection that the
// receiver has closed does not make an attempt fail.
func TestConnectionsAreReused(t *testing.T) {
	h := newHarness(t)
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = read(r) }))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	hook := h.endpoint(server.URL)
	s := h.start(h.config())
	const rounds, events = 3, 100
	for round := range rounds {
		h.raise(events)
		s.Wake()
		list := h.await(hook, "all deliveries are delivered", in((round+1)*events, webhook.Delivered))
		for _, d := range list {
			if len(d.Attempts) != 1 {
				t.Fatalf("got the delivery %+v, want one attempt", d)
			}
		}
		server.CloseClientConnections()
	}
	if n := opened.Load(); n > rounds*2*sender.MaxWindow {
		t.Errorf("got %d connections for %d deliveries, want at most %d", n, rounds*events, rounds*2*sender.MaxWindow)
	}
}

// Guarantee: if this server cannot decrypt the signing secret, the attempt fails, the error
// says what to do, and nothing is sent.
func TestUndecryptableSecretSendsNothing(t *testing.T) {
	h := newHarness(t)
	url, requests := raw(t, func(*net.TCPConn) {})
	w := &webhook.Webhook{
		ID: id.New(id.Webhook), AccountID: h.owner, URL: url, Events: []event.Type{event.KeyCreated}, State: webhook.Active,
		Secret: []byte("sealed by somebody else, long ago"), CreatedAt: time.Now(),
	}
	h.update(func(tx control.Tx) error { return tx.InsertWebhook(t.Context(), w) })
	h.raise(1)
	h.start(h.config())
	list := h.await(w.ID, "there is an attempt", func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
	if a := list[0].Attempts[0]; !strings.Contains(a.Error, "--secret-key-file") || a.Status != 0 || requests.Load() != 0 {
		t.Errorf("got the attempt %+v after %d requests, want an error that names --secret-key-file and no request", a, requests.Load())
	}
}

// Guarantee: deliveries over TLS are sent only to receivers with a valid certificate; for
// others the error says what is wrong with it.
func TestTLSCertificateIsVerified(t *testing.T) {
	h := newHarness(t)
	var count atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("got the protocol %s, want HTTP/1.1", r.Proto)
		}
		count.Add(1)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, tc := range []struct {
		url   string
		roots *x509.CertPool
		want  string
	}{
		{"https://example.com" + port, roots, ""}, // a name in the certificate
		{server.URL, nil, "unknown authority"},
		{"https://localhost" + port, roots, "another host"},
		{strings.Replace(plain.URL, "http:", "https:", 1), roots, "TLS"},
		{"https://127.0.0.1:1", roots, "refused"},
	} {
		before := count.Load()
		cfg := h.config()
		cfg.Roots = tc.roots
		cfg.Resolver = dnstest.Resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
		hook := h.endpoint(tc.url)
		h.raise(1)
		s := h.start(cfg)
		list := h.await(hook, tc.url, func(list []webhook.Delivery) bool { return len(list[0].Attempts) > 0 })
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		a := list[0].Attempts[0]
		reached := count.Load() > before
		if tc.want == "" && (!reached || a.Error != "") {
			t.Errorf("%s: got the error %q (request received: %v), want a delivery", tc.url, a.Error, reached)
		}
		if tc.want != "" && (reached || !strings.Contains(a.Error, tc.want)) {
			t.Errorf("%s: got the error %q (request received: %v), want one that contains %q and no request", tc.url, a.Error, reached, tc.want)
		}
		h.update(func(tx control.Tx) error { return tx.DeleteWebhook(t.Context(), h.owner, hook) })
	}
}
