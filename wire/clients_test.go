package wire

import (
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
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
			ws, err := websocket.NewClient(cfg, dialServer(t, s))
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			if err := ws.SetDeadline(time.Now().Add(testTimeout)); err != nil {
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

// allowances returns the h2spec cases in which net/http's HTTP/2 server deviates, and why it
// may.
func allowances() map[string]string {
	return map[string]string{
		"Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                                          "it closes the connection of a client that sends one setting twice",
		"Sends a HEADERS frame that contains the connection-specific header field":                       "it responds with 400, which RFC 9113, 8.1.1 allows",
		"Sends a HEADERS frame that contains the TE header field with any value other than \"trailers\"": "it responds with 400, which RFC 9113, 8.1.1 allows",
	}
}

// Guarantee: the HTTP/2 conformance tests of h2spec pass, apart from the allowances, with and
// without TLS.
func TestHTTP2Conformance(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(protocols))
	t.Cleanup(up.Close)
	tool := filepath.Join(t.TempDir(), "h2spec")
	build := exec.Command("go", "build", "-modfile=tools/tools.mod", "-o", tool, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build h2spec: %v\n%s", err, out)
	}
	for _, overTLS := range []bool{false, true} {
		t.Run("tls "+strconv.FormatBool(overTLS), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, up.URL, overTLS)
			host, port, err := net.SplitHostPort(s.addr)
			if err != nil {
				t.Fatal(err)
			}
			allowed := allowances()
			args := []string{"-h", host, "-p", port, "-P", "/public/x", "-o", "10"}
			if overTLS {
				args = append(args, "-t", "-k")
			} else {
				allowed["Sends invalid connection preface"] = "without TLS it is read as an HTTP/1.1 request, and refused before it is complete"
			}
			// The parts run concurrently, because each allowance takes a whole timeout.
			var parts sync.WaitGroup
			var seen atomic.Int32
			for _, part := range [][]string{{"generic", "hpack", "http2/3"}, {"http2/4", "http2/5", "http2/7"}, {"http2/6"}, {"http2/8"}} {
				report := filepath.Join(t.TempDir(), "report.xml")
				parts.Go(func() {
					out, _ := exec.CommandContext(t.Context(), tool, slices.Concat(args, []string{"-j", report}, part)...).CombinedOutput()
					cases, failed := failures(t, report, out)
					seen.Add(int32(cases))
					for name, why := range failed {
						if allowed[name] == "" {
							t.Errorf("h2spec case %q failed: %s", name, why)
						}
					}
				})
			}
			parts.Wait()
			if n := seen.Load(); n < 140 {
				t.Errorf("got %d cases, want at least 140", n)
			}
		})
	}
}

// failures returns from an h2spec report how many cases ran, and which failed and why.
func failures(t *testing.T, report string, output []byte) (seen int, failed map[string]string) {
	t.Helper()
	data, err := os.ReadFile(report)
	if err != nil {
		t.Errorf("h2spec wrote no report: %v\n%s", err, output)
		return 0, nil
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Name    string  `xml:"classname,attr"`
				Failure *string `xml:"failure"`
				Error   *string `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		t.Errorf("parse the report of h2spec: %v\n%s", err, data)
		return 0, nil
	}
	failed = map[string]string{}
	for _, suite := range suites.Suites {
		for _, c := range suite.Cases {
			seen++
			for _, why := range []*string{c.Failure, c.Error} {
				if why != nil {
					failed[c.Name] = *why
				}
			}
		}
	}
	return seen, failed
}
