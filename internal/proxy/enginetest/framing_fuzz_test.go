package enginetest_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// sent is a request of FuzzFraming: what its client sends, and what its upstream does. The upstream
// knows it by its number, which is in the path.
type sent struct {
	number   int
	method   string
	overH2   bool // the client's version
	upgrade  bool // asks for a WebSocket
	declared int  // Content-Length; -1 means none, and -2 a body without a length
	size     int  // of the body
	aborts   bool // the client hangs up in the middle of the body
	waits    bool // the client waits for the response in the middle of the body
	trailers bool
	expects  bool // the client waits for a 100, which the upstream sends
	early    bool // the upstream responds before it reads the body
	closes   bool // the upstream closes the connection after the response
	accepts  bool // the upstream accepts the upgrade
	status   int
}

// bodyOf returns the body of a request. Each request has another.
func bodyOf(number, size int) string {
	return strings.Repeat(fmt.Sprintf("<%d>", number), size)[:size]
}

// sentBy reads a request from the input of the fuzzer.
func sentBy(number int, in [4]byte) sent {
	r := sent{
		number: number, overH2: in[0]&1 != 0, declared: -1, method: "GET", status: [...]int{200, 204, 304, 404}[in[1]>>1&3],
		early: in[1]&1 != 0, closes: in[1]&8 != 0, accepts: in[1]&16 != 0, size: int(in[2]) * [...]int{1, 50}[in[3]&1],
		trailers: in[3]&2 != 0, expects: in[3]&4 != 0 && in[1]&1 == 0, aborts: in[3]&8 != 0, waits: in[3]&16 != 0,
	}
	switch in[0] >> 1 & 7 {
	case 0, 1: // no body
		r.method, r.size = [...]string{"GET", "HEAD", "POST", "PUT"}[in[3]>>6], 0
	case 2: // an empty one
		r.method, r.size, r.declared = "POST", 0, 0
	case 3, 4:
		r.method, r.declared = [...]string{"POST", "GET", "PATCH", "HEAD"}[in[3]>>6], r.size
	case 5:
		r.method, r.declared = [...]string{"POST", "GET", "PUT", "HEAD"}[in[3]>>6], -2
	case 6:
		r.upgrade, r.size = true, 0
		if in[3]&32 != 0 {
			r.declared = int(in[2]) // over HTTP/2 this is malformed; over HTTP/1.1 a body follows
		}
		if !r.overH2 && r.declared > 0 {
			r.size = r.declared
		}
	case 7: // a body that differs from its declaration: over HTTP/1.1 its end is missing
		r.method, r.declared = "POST", r.size+1+int(in[3]>>6)
		if r.overH2 && in[3]&32 != 0 {
			r.declared = r.size / 2
		}
	}
	if r.size == 0 {
		r.aborts, r.waits = false, false
	}
	r.expects = r.expects && r.size > 0 && !r.waits
	r.waits = r.waits && r.early
	return r
}

// regular reports whether the request must get the upstream's response.
func (r *sent) regular() bool {
	return !r.aborts && (r.declared < 0 || r.declared == r.size) && r.size <= framingBodyLimit && !(r.upgrade && (r.accepts || r.overH2))
}

// breaksOff reports whether the client sends less of the body than it declares. A client that aborts
// sends half of the body, which may be everything that it has declared.
func (r *sent) breaksOff() bool {
	sends := r.size
	if r.aborts {
		sends /= 2
	}
	return r.declared > sends || r.declared < 0 && r.aborts
}

// framingBodyLimit is the max_body_bytes of FuzzFraming.
const framingBodyLimit = 10_000

// FuzzFraming sends requests of clients of both versions of HTTP to upstreams of both: without a body,
// with a body of each kind, whole and cut short, for upgrades, and with responses that come before the
// body. The upstreams check that they get exactly what the heads have declared, and the clients check
// that each response belongs to their request.
func FuzzFraming(f *testing.F) {
	for _, seed := range framingSeeds() {
		f.Add(seed)
	}
	p := newFramingPeers(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		p.begin(t)
		for i := 0; i+4 <= min(len(in), 32); i += 4 {
			r := sentBy(p.next(), [4]byte(in[i:i+4]))
			p.exchange(t, r, in[i]&0x80 != 0)
		}
		for _, overH2 := range []bool{false, true} { // the connections to the upstreams still serve requests
			for _, toH2 := range []bool{false, true} {
				p.exchange(t, sent{number: p.next(), method: "GET", overH2: overH2, declared: -1, status: http.StatusOK}, toH2)
			}
		}
		p.end(t)
	})
}

// framingSeeds has each kind of request, for each pair of versions, by itself and ahead of another.
func framingSeeds() (seeds [][]byte) {
	for kind := range byte(8) {
		for pair := range byte(4) {
			first := kind<<1 | pair&1 | pair>>1<<7
			for _, behind := range [][3]byte{{0, 3, 0}, {1, 200, 1}, {1, 20, 16}, {1, 200, 17}, {6, 20, 8}, {0, 30, 6}, {16, 40, 32}, {1, 40, 0x62}, {8, 250, 1}} {
				seeds = append(seeds, append([]byte{first}, behind[:]...), append(append([]byte{first}, behind[:]...), kind<<1|1, 0, 5, 0x40))
			}
		}
	}
	return seeds
}

// head returns the path and the fields by which the upstream knows what to do.
func (r *sent) head() (path string, fields [][2]string) {
	path = "/public/" + strconv.Itoa(r.number)
	if r.declared >= 0 {
		fields = append(fields, [2]string{"content-length", strconv.Itoa(r.declared)})
	}
	if r.expects {
		fields = append(fields, [2]string{"expect", "100-continue"})
	}
	return path, append(fields, [2]string{"sec-websocket-version", "13"})
}
