package enginetest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// breakingUpstream starts an upstream that closes its connection as soon as it has the head of a
// request and n bytes of its body. kind is http, https, h2c or h2, which is HTTP/2 over TLS.
func breakingUpstream(t *testing.T, kind string, n int) (url, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	secure := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{map[string]string{"https": "http/1.1", "h2": "h2"}[kind]}}
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if kind == "https" || kind == "h2" {
			over := tls.Server(c.Conn, secure)
			defer over.Close()
			c = &upstreamtest.Conn{Conn: over, Reader: bufio.NewReader(over)}
		}
		if kind == "h2c" || kind == "h2" {
			readStream(c, n)
			return
		}
		head, err := c.ReadHead()
		for read := 0; read < n && err == nil; {
			if strings.Contains(head, "chunked") {
				var data string
				data, err = readChunk(c)
				read += len(data)
				continue
			}
			_, err = io.ReadFull(c, make([]byte, n))
			read = n
		}
	})
	scheme := map[string]string{"http": "http", "h2c": "h2c", "https": "https", "h2": "https"}[kind]
	return scheme + "://" + addr, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// readStream reads from an HTTP/2 client until it has sent a head and n bytes of data.
func readStream(c *upstreamtest.Conn, n int) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c.Conn, c)
	_ = f.WriteSettings()
	for headed, read := false, 0; !headed || read < n; {
		frame, err := f.ReadFrame()
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			headed = true
		case *http2.DataFrame:
			read += len(frame.Data())
		}
		if err != nil {
			return
		}
	}
}

// heldBody is a request's body that ends only once release is closed.
type heldBody struct {
	io.Reader
	release <-chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		<-b.release
	}
	return n, err
}

// Guarantee: when an upstream closes its connection before the whole body of a request has arrived, the
// client gets a 502, and the record says so: for every kind of client and upstream, whether or not the
// length is declared, and however much of the body the client has sent.
func TestUpstreamThatBreaksOffWithinTheBody(t *testing.T) {
	for _, kind := range []string{"http", "https", "h2c", "h2"} {
		for _, sent := range []int{0, 5, 10} {
			for _, declared := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d of 10 bytes, declared %v", kind, sent, declared), func(t *testing.T) {
					overBoth(t, func(t *testing.T, client http.RoundTripper) {
						s := setup{realClock: true}
						s.upstream, s.ca = breakingUpstream(t, kind, sent)
						start(t, s).wantBrokenOff(t, client, sent, declared)
					})
				})
			}
		}
	}
}

// wantBrokenOff sends a request with a body of 10 bytes, of which the client sends only as many as
// sent before it has the response, and checks the response and its record.
func (g *harness) wantBrokenOff(t *testing.T, client http.RoundTripper, sent int, declared bool) {
	t.Helper()
	release := make(chan struct{})
	body := io.Reader(bytes.NewReader(make([]byte, sent)))
	if sent < 10 {
		body = &heldBody{body, release}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	if req.ContentLength = -1; declared {
		req.ContentLength = 10
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := client.RoundTrip(req)
	close(release)
	if err != nil {
		t.Fatalf("got no response: %v", err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), `"upstream_unreachable"`) {
		t.Errorf("got %s with %q, want 502 upstream_unreachable", resp.Status, text)
	}
	if r := final(t, g.records()); r.Result != accesslog.Unreachable || r.Status != 502 || r.Reason == accesslog.NoReason {
		t.Errorf("got result %v, status %d, reason %v; want Unreachable, 502 and a reason", r.Result, r.Status, r.Reason)
	}
}
