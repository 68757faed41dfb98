package wire

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: sections 4.1 to 4.5 of the contract hold byte for byte, over plain TCP, over
// TLS, and however the client's bytes are split.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases found in testdata:", err)
	}
	for _, file := range files {
		for _, s := range readScripts(t, file) {
			for _, mode := range []string{"plain", "tls", "bytes"} {
				if !s.runsIn(mode) {
					continue
				}
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+s.name+"/"+mode, func(t *testing.T) {
					t.Parallel()
					play(t, &s, mode)
				})
			}
		}
	}
}

// caseRun is a running case.
type caseRun struct {
	t      *testing.T
	mode   string // plain, tls or bytes
	plane  *dataPlane
	vars   variables
	back   *rawUpstream
	client *side
	up     *side   // the current connection of the upstream
	ups    []*side // all of them
}

// play runs a case.
func play(t *testing.T, s *script, mode string) {
	back := newRawUpstream(t)
	var over *tls.Config
	if mode == "tls" {
		over = serverTLS(t)
	}
	p := start(t, s.setupOf(t), back.addr, over)
	x := &caseRun{t: t, mode: mode, plane: p, back: back}
	x.vars = variables{
		"key": p.key, "upstream": back.addr, "proto": "http", "gateway": gatewayID, "keyid": keyID, "owner": owner, "via": viaName,
		"host": hostname,
		"own": `X-Request-Id: {id}\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: {host}\r\nX-Forwarded-Proto: {proto}\r\nVia: 1.1 {via}\r\n` +
			`X-Keygate-Gateway-Id: {gateway}\r\nX-Keygate-Key-Id: {keyid}\r\nX-Keygate-Key-Owner: {owner}`,
	}
	x.vars["own12"] = strings.Replace(x.vars["own"], "Via: 1.1 ", "Via: 1.2 ", 1)
	x.vars["own10"] = strings.Replace(x.vars["own"], "Via: 1.1 ", "Via: 1.0 ", 1)
	if over != nil {
		x.vars["proto"] = "https"
	}
	x.connect()
	for i := range s.steps {
		x.step(s, &s.steps[i])
		if t.Failed() {
			return
		}
	}
	x.finish()
	if t.Failed() {
		t.Logf("case at %s; the gateway's log:\n%s", s.position, p.log)
	}
}

func (x *caseRun) connect() {
	conn, err := net.Dial("tcp", x.plane.addr)
	if err != nil {
		x.t.Fatal(err)
	}
	if x.plane.tls != nil {
		conn = tls.Client(conn, clientTLS(x.plane.tls))
	}
	x.client = newSide(x.t, "client", conn)
}

// pieces returns the sizes of the pieces in which the client's bytes are sent.
func (x *caseRun) pieces(length int) func() int {
	if x.mode != "bytes" {
		return atOnce
	}
	if length <= 2<<10 {
		return func() int { return 1 }
	}
	r := rand.New(rand.NewPCG(uint64(length), 3))
	return func() int { return 1 + r.IntN(2<<10) }
}

// upstream returns the current connection of the upstream. It waits for the first one.
func (x *caseRun) upstream() *side {
	x.t.Helper()
	if x.up == nil {
		x.nextUpstream()
	}
	return x.up
}

func (x *caseRun) nextUpstream() {
	x.t.Helper()
	select {
	case conn := <-x.back.conns:
		x.up = newSide(x.t, "upstream", conn)
		x.ups = append(x.ups, x.up)
	case <-time.After(awaittest.Timeout):
		x.t.Fatal("timed out waiting for a connection to the upstream; the client received\n" + show(x.client.peek()))
	}
}

func (x *caseRun) step(s *script, at *step) {
	x.t.Helper()
	defer func() {
		if x.t.Failed() {
			x.t.Logf("step in line %d of the case at %s; the gateway's log:\n%s", at.line, s.position, x.plane.log)
		}
	}()
	switch what := at.what; what {
	case "client sends":
		text := expand(x.t, at.text, x.vars)
		x.client.sendPieces([]byte(text), x.pieces(len(text)))
	case "upstream sends":
		x.upstream().send(expand(x.t, at.text, x.vars))
	case "upstream receives":
		x.upstream().expect(x.t, compile(x.t, at.text, x.vars))
	case "client receives":
		x.client.expect(x.t, compile(x.t, at.text, x.vars))
	case "another upstream connection":
		x.nextUpstream()
	case "client closes its half":
		x.client.closeWrite()
	case "client closes":
		x.client.close()
	case "client resets":
		x.client.reset()
	case "client sees the connection end":
		x.client.expectEnd(x.t)
	case "client sees a proper end":
		x.client.expectClean(x.t)
	case "client sees an improper end":
		x.client.expectBreak(x.t)
	case "upstream closes its half":
		x.upstream().closeWrite()
	case "upstream closes":
		x.upstream().close()
	case "upstream resets":
		x.upstream().reset()
	case "upstream sees the connection end":
		x.upstream().expectEnd(x.t)
	default:
		args := strings.Fields(what)
		if d, passes := strings.CutSuffix(what, " pass"); passes {
			x.pass(at, d)
			return
		}
		if len(args) < 3 || args[0] != "refused" {
			x.t.Fatalf("line %d: unknown step %q", at.line, what)
		}
		x.refused(args[1], args[2], len(args) > 3)
	}
}

// pass advances the gateway's clock.
func (x *caseRun) pass(at *step, text string) {
	x.t.Helper()
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		x.t.Fatalf("line %d: %v", at.line, err)
	}
	x.plane.clock.advance(x.t, d)
}

// refused receives an error response of the gateway and checks it (contract, 2 and 4.5).
func (x *caseRun) refused(status, code string, closed bool) {
	x.t.Helper()
	resp, content := x.client.response(x.t)
	if got := strconv.Itoa(resp.StatusCode); got != status {
		x.t.Fatalf("got status %s with body %s, want %s", got, content, status)
	}
	var body struct {
		Error     string `json:"error"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(content, &body); err != nil {
		x.t.Fatalf("got body %s, want JSON: %v", content, err)
	}
	if body.Error != code || body.Message == "" || body.RequestID == "" || body.RequestID != resp.Header.Get("X-Request-Id") {
		x.t.Errorf("got body %s, want the error %s, a message and the request identifier %q", content, code, resp.Header.Get("X-Request-Id"))
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		x.t.Errorf("got Content-Type %q, want application/json", got)
	}
	if strings.Contains(string(content), x.plane.key) {
		x.t.Errorf("got body %s, want no key in it", content)
	}
	if closed && !resp.Close {
		x.t.Error("got no Connection: close, want one")
	}
	if !closed && resp.Close {
		x.t.Error("got Connection: close, want the connection kept")
	}
	if closed {
		x.client.expectEnd(x.t)
	}
}

// response receives one response that delimits itself.
func (s *side) response(t testing.TB) (*http.Response, []byte) {
	t.Helper()
	for {
		under := bytes.NewReader(s.in)
		r := bufio.NewReader(under)
		resp, err := http.ReadResponse(r, nil)
		if err == nil {
			var content []byte
			content, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil {
				s.in = s.in[len(s.in)-under.Len()-r.Buffered():]
				return resp, content
			}
		}
		if !s.more() {
			t.Fatalf("%s: want a complete response, got %v, %v\n%s", s.name, err, s.err, show(s.in))
		}
	}
}

// peek returns what has been received or arrives within 10 ms, without consuming it.
func (s *side) peek() []byte {
	_ = s.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	piece := make([]byte, 32<<10)
	n, _ := s.conn.Read(piece)
	return append(s.in, piece[:n]...)
}

// finish checks that neither side received anything beyond the steps of the case.
func (x *caseRun) finish() {
	x.client.closeWrite()
	x.client.expectEnd(x.t)
	x.client.close()
	stopNow(x.plane)
	for _, up := range x.ups {
		up.expectRest(x.t)
	}
	select {
	case conn := <-x.back.conns:
		up := newSide(x.t, "upstream", conn)
		x.t.Fatalf("got another connection to the upstream, want none: %s", show(up.peek()))
	default:
	}
}

// expectRest checks that nothing more is received.
func (s *side) expectRest(t testing.TB) {
	t.Helper()
	for s.more() {
	}
	if len(s.in) > 0 {
		t.Fatalf("%s: received more than the case expects:\n%s", s.name, show(s.in))
	}
}
