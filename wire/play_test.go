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
)

// Guarantee: 4.1 to 4.5 of the contract hold byte for byte, over plain TCP, over
// TLS, and however the client's bytes come.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
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

// stage is a case under way.
type stage struct {
	t      *testing.T
	mode   string
	plane  *plane
	words  names
	back   *backstage
	client *side
	up     *side   // the upstream's current connection
	ups    []*side // all of them
}

func play(t *testing.T, s *script, mode string) {
	back := newBackstage(t)
	var over *tls.Config
	if mode == "tls" {
		over = serverTLS(t)
	}
	p := start(t, s.setupOf(t), back.addr, over)
	x := &stage{t: t, mode: mode, plane: p, back: back}
	x.words = names{
		"key": p.key, "upstream": back.addr, "proto": "http", "gateway": gatewayID, "keyid": keyID, "owner": owner, "via": pseudonym,
		"host": hostname,
		"own": `X-Request-Id: {id}\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: {host}\r\nX-Forwarded-Proto: {proto}\r\nVia: 1.1 {via}\r\n` +
			`X-Keygate-Gateway-Id: {gateway}\r\nX-Keygate-Key-Id: {keyid}\r\nX-Keygate-Key-Owner: {owner}`,
	}
	x.words["own12"] = strings.Replace(x.words["own"], "Via: 1.1 ", "Via: 1.2 ", 1)
	x.words["own10"] = strings.Replace(x.words["own"], "Via: 1.1 ", "Via: 1.0 ", 1)
	if over != nil {
		x.words["proto"] = "https"
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
		t.Logf("%s; the gateway's log:\n%s", s.place, p.log)
	}
}

func (x *stage) connect() {
	conn, err := net.Dial("tcp", x.plane.addr)
	if err != nil {
		x.t.Fatal(err)
	}
	if x.plane.tls != nil {
		conn = tls.Client(conn, clientTLS(x.plane.tls))
	}
	x.client = newSide(x.t, "client", conn)
}

// pieces tells in what sizes the client's bytes go out.
func (x *stage) pieces(length int) func() int {
	if x.mode != "bytes" {
		return whole
	}
	if length <= 2<<10 {
		return func() int { return 1 }
	}
	r := rand.New(rand.NewPCG(uint64(length), 3))
	return func() int { return 1 + r.IntN(2<<10) }
}

// upstream returns the upstream's current connection; the first one is waited
// for.
func (x *stage) upstream() *side {
	x.t.Helper()
	if x.up == nil {
		x.nextUpstream()
	}
	return x.up
}

func (x *stage) nextUpstream() {
	x.t.Helper()
	select {
	case conn := <-x.back.conns:
		x.up = newSide(x.t, "upstream", conn)
		x.ups = append(x.ups, x.up)
	case <-time.After(patience):
		x.t.Fatal("nothing connects to the upstream; the client received\n" + show(x.client.peek()))
	}
}

func (x *stage) step(s *script, at *step) {
	x.t.Helper()
	defer func() {
		if x.t.Failed() {
			x.t.Logf("in the step of line %d of %s; the gateway's log:\n%s", at.line, s.place, x.plane.log)
		}
	}()
	switch what := at.what; what {
	case "client":
		text := expand(x.t, at.text, x.words)
		x.client.send([]byte(text), x.pieces(len(text)))
	case "answer":
		x.upstream().say(expand(x.t, at.text, x.words))
	case "upstream":
		x.upstream().expect(x.t, compile(x.t, at.text, x.words))
	case "result":
		x.client.expect(x.t, compile(x.t, at.text, x.words))
	case "another upstream":
		x.nextUpstream()
	case "another client":
		x.connect()
	case "client ends":
		x.client.end()
	case "client closes":
		x.client.close()
	case "client resets":
		x.client.reset()
	case "client sees cut": // the framing tells that something is missing
		x.client.expectEnd(x.t)
	case "client sees end":
		x.client.expectClean(x.t)
	case "client sees break":
		x.client.expectBreak(x.t)
	case "upstream ends":
		x.upstream().end()
	case "upstream closes":
		x.upstream().close()
	case "upstream resets":
		x.upstream().reset()
	case "upstream sees end":
		x.upstream().expectEnd(x.t)
	default:
		args := strings.Fields(what)
		if d, passes := strings.CutSuffix(what, " pass"); passes {
			x.pass(at, d)
			return
		}
		if len(args) < 3 || args[0] != "refused" {
			x.t.Fatalf("line %d: the step %q means nothing", at.line, what)
		}
		x.refused(args[1], args[2], len(args) > 3)
	}
}

// pass lets time pass on the gateway's clock.
func (x *stage) pass(at *step, text string) {
	x.t.Helper()
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		x.t.Fatalf("line %d: %v", at.line, err)
	}
	x.plane.clock.pass(x.t, d)
}

// refused reads an answer of the gateway's own (contract, 2 and 4.5).
func (x *stage) refused(status, word string, closed bool) {
	x.t.Helper()
	resp, content := x.client.response(x.t)
	if got := strconv.Itoa(resp.StatusCode); got != status {
		x.t.Fatalf("status %s, want %s: %s", got, status, content)
	}
	var body struct {
		Error     string `json:"error"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(content, &body); err != nil {
		x.t.Fatalf("the body is no JSON: %v\n%s", err, content)
	}
	if body.Error != word || body.Message == "" || body.RequestID == "" || body.RequestID != resp.Header.Get("X-Request-Id") {
		x.t.Errorf("want the error %s, a message and the request's identifier %q: %s", word, resp.Header.Get("X-Request-Id"), content)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		x.t.Errorf("Content-Type %q", got)
	}
	if strings.Contains(string(content), x.plane.key) {
		x.t.Errorf("the key is in the answer: %s", content)
	}
	if closed != resp.Close {
		x.t.Errorf("the answer says that the connection closes: %v, want %v", resp.Close, closed)
	}
	if closed {
		x.client.expectEnd(x.t)
	}
}

// response receives one answer that has a length.
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
			t.Fatalf("the %s received no whole answer (%v, %v)\n%s", s.name, err, s.err, show(s.in))
		}
	}
}

// peek returns what has been received, without waiting for more.
func (s *side) peek() []byte {
	_ = s.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	piece := make([]byte, 32<<10)
	n, _ := s.conn.Read(piece)
	return append(s.in, piece[:n]...)
}

// finish makes sure that nobody received anything that the case does not tell.
func (x *stage) finish() {
	x.client.end()
	x.client.expectEnd(x.t)
	x.client.close()
	stopNow(x.plane)
	for _, up := range x.ups {
		up.expectRest(x.t)
	}
	select {
	case conn := <-x.back.conns:
		up := newSide(x.t, "upstream", conn)
		x.t.Fatalf("a connection to the upstream that the case does not tell of: %s", show(up.peek()))
	default:
	}
}

// expectRest fails if anything was received that was not asked for.
func (s *side) expectRest(t testing.TB) {
	t.Helper()
	for s.more() {
	}
	if len(s.in) > 0 {
		t.Fatalf("the %s received more:\n%s", s.name, show(s.in))
	}
}
