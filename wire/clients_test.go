package wire

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// protocols responds with the HTTP version, the method and the body length of the request
// that reached the upstream.
func protocols(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprintf(w, "%s %s %d\n", r.Proto, r.Method, n)
}

// Guarantee: curl works with the gateway over every HTTP version, with and without TLS, and
// its uploads with Expect arrive.
func TestCurl(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(protocols))
	t.Cleanup(up.Close)
	plain, secure := startServer(t, up.URL, false), startServer(t, up.URL, true)
	file := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(file, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		to   *testServer
		args []string
		want string
	}{
		{"HTTP/1.1", plain, nil, "HTTP/1.1 GET 0\n1.1 200"},
		{"HTTP/1.0", plain, []string{"--http1.0"}, "HTTP/1.1 GET 0\n1.1 200"},
		{"HTTP/2 by prior knowledge", plain, []string{"--http2-prior-knowledge"}, "HTTP/1.1 GET 0\n2 200"},
		{"HTTP/2 by upgrade stays HTTP/1.1", plain, []string{"--http2"}, "HTTP/1.1 GET 0\n1.1 200"},
		{"upload with Expect", plain, []string{"-T", file, "-H", "Expect: 100-continue"}, "HTTP/1.1 PUT 3145728\n1.1 200"},
		{"upload in chunks with Expect", plain, []string{"-T", file, "-H", "Expect: 100-continue", "-H", "Transfer-Encoding: chunked"}, "HTTP/1.1 PUT 3145728\n1.1 200"},
		{"HTTP/1.1 over TLS", secure, []string{"--http1.1"}, "HTTP/1.1 GET 0\n1.1 200"},
		{"HTTP/1.0 over TLS", secure, []string{"--http1.0"}, "HTTP/1.1 GET 0\n1.1 200"},
		{"HTTP/2 over TLS", secure, []string{"--http2"}, "HTTP/1.1 GET 0\n2 200"},
		{"upload with Expect over TLS", secure, []string{"--http1.1", "-T", file, "-H", "Expect: 100-continue"}, "HTTP/1.1 PUT 3145728\n1.1 200"},
		{"upload over HTTP/2", secure, []string{"--http2", "-T", file}, "HTTP/1.1 PUT 3145728\n2 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := "http://" + c.to.addr + "/x"
			args := []string{"-sS", "--max-time", "120", "--noproxy", "*", "-H", "Authorization: Bearer " + c.to.key, "-w", "%{http_version} %{http_code}"}
			if c.to.cert != "" {
				_, port, err := net.SplitHostPort(c.to.addr)
				if err != nil {
					t.Fatal(err)
				}
				url = "https://localhost:" + port + "/x"
				args = append(args, "--cacert", c.to.cert, "--resolve", "localhost:"+port+":127.0.0.1")
			}
			out, err := exec.Command("curl", append(append(args, c.args...), url)...).CombinedOutput()
			if err != nil || string(out) != c.want {
				t.Errorf("curl: got error %v, output\n%s\nwant\n%s", err, out, c.want)
			}
		})
	}
}

// Guarantee: a thousand WebSocket frames pass in each direction, in order, over plain TCP and
// over TLS.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	const frames = 1000
	up := httptest.NewServer(websocket.Server{Handler: func(ws *websocket.Conn) {
		var frame string
		for websocket.Message.Receive(ws, &frame) == nil && websocket.Message.Send(ws, frame) == nil {
		}
	}})
	t.Cleanup(up.Close)
	for _, overTLS := range []bool{false, true} {
		t.Run("tls "+strconv.FormatBool(overTLS), func(t *testing.T) {
			s := startServer(t, up.URL, overTLS)
			scheme := "ws"
			if overTLS {
				scheme = "wss"
			}
			cfg, err := websocket.NewConfig(scheme+"://"+hostname+"/ws", "http://"+hostname)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Header = http.Header{"Authorization": {"Bearer " + s.key}}
			ws, err := websocket.NewClient(cfg, dialServer(t, s, "http/1.1"))
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			if err := ws.SetDeadline(time.Now().Add(awaittest.Timeout)); err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			frame := func(i int) string { return strconv.Itoa(i) + strings.Repeat("f", i%300) }
			go func() {
				for i := range frames {
					if err := websocket.Message.Send(ws, frame(i)); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for i := range frames {
				var got string
				if err := websocket.Message.Receive(ws, &got); err != nil || got != frame(i) {
					t.Fatalf("frame %d: got %q, error %v; want %q", i, got, err, frame(i))
				}
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		})
	}
}
