package wire

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// service is an upstream for HTTP/2 clients, with its reports on requests.
type service struct {
	url     string
	proto   string        // the HTTP version of its requests
	release chan struct{} // ends a response of /wait for each value
	ended   chan struct{} // receives when a response of /endless has ended
}

// startService starts a service that speaks HTTP/1.1, or HTTP/2 in clear if scheme is h2c.
func startService(t *testing.T, scheme string) *service {
	t.Helper()
	up := &service{proto: "HTTP/1.1", release: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/", up.report)
	mux.HandleFunc("/early", early)
	mux.HandleFunc("/long", long)
	mux.HandleFunc("/wait", up.wait)
	mux.HandleFunc("/endless", up.endless)
	mux.Handle("/ws", websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }))
	s := httptest.NewUnstartedServer(mux)
	if scheme == "h2c" {
		up.proto = "HTTP/2.0"
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	s.Start()
	t.Cleanup(s.Close)
	up.url = scheme + "://" + s.Listener.Addr().String()
	return up
}

// report responds with the received parts of a request, and with the trailer x-length. The status
// is 422 if the checksum of the body differs from the request's x-checksum.
func (up *service) report(w http.ResponseWriter, r *http.Request) {
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if want := r.Header.Get("X-Checksum"); want != "" && want != fmt.Sprintf("%08x", sum.Sum32()) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Trailer", "X-Length")
	_, _ = fmt.Fprintf(w, "%s %s %d %08x %s\n", r.Proto, r.Method, n, sum.Sum32(), r.Trailer.Get("X-Sum"))
	w.Header().Set("X-Length", strconv.FormatInt(n, 10))
}

// reported is the body of a response of report.
func (up *service) reported(method string, body []byte, trailer string) string {
	return fmt.Sprintf("%s %s %d %08x %s\n", up.proto, method, len(body), crc32.ChecksumIEEE(body), trailer)
}

// early responds without reading the body.
func early(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, "early\n")
}

// long responds with longBody, and its checksum in the field x-checksum.
func long(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Checksum", fmt.Sprintf("%08x", crc32.ChecksumIEEE(longBody)))
	_, _ = w.Write(longBody)
}

// longBody is longer than all windows of HTTP/2 together. Every part differs from every other.
var longBody = func() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 3<<20; i++ {
		_, _ = fmt.Fprintf(&b, "%d,", i)
	}
	return b.Bytes()
}()

// wait responds with a head at once and with its body when it is released.
func (up *service) wait(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	select {
	case <-up.release:
		_, _ = io.WriteString(w, "released\n")
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// endless responds until nobody reads any more.
func (up *service) endless(w http.ResponseWriter, _ *http.Request) {
	defer func() { up.ended <- struct{}{} }()
	part := []byte(strings.Repeat("endless ", 1000))
	for {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// http2Ways runs f with a server for each way in which an HTTP/2 client and a service can be
// connected: over TLS and in clear, and with an upstream of each HTTP version.
func http2Ways(t *testing.T, f func(t *testing.T, s *testServer, up *service)) {
	for _, scheme := range []string{"http", "h2c"} {
		for way, overTLS := range map[string]bool{"over TLS": true, "in clear": false} {
			t.Run(way+" to "+scheme, func(t *testing.T) {
				t.Parallel()
				up := startService(t, scheme)
				f(t, startServer(t, up.url, overTLS), up)
			})
		}
	}
}

// url returns the URL of a path of a server's data plane.
func (s *testServer) url(path string) string {
	if s.cert == "" {
		return "http://" + s.addr + path
	}
	return "https://" + s.addr + path
}
