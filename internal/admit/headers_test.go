package admit

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
)

// Guarantee: edge.md, 2: whatever the value of a variable is, it is in a header as visible ASCII, without what ends a value or a part of
// one, and decoding gives it back.
func FuzzVariables(f *testing.F) {
	for _, seed := range []string{"", "acme", "a b", "a\r\nX-B: c", `a", b; c=%41`, "ü\x00\xff", strings.Repeat("%", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got := string(appendEncoded(nil, value))
		if i := strings.IndexFunc(got, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;`, r) }); i >= 0 {
			t.Errorf("%q became %q, want visible ASCII without separators", value, got)
		}
		if back, err := url.PathUnescape(got); err != nil || back != value {
			t.Errorf("%q became %q, which is decoded to %q, %v", value, got, back, err)
		}
	})
}

// Guarantee: edge.md, 2: a header with a variable that has no value is left out, and all others are set; a rule of the route for a name
// takes the place of the gateway's, also one that removes it.
func TestEachHeader(t *testing.T) {
	compile := func(set map[string]string, remove ...string) *snapshot.HeaderRules {
		return snapshot.CompileHeaderRules(&gateway.HeaderRules{Set: set, Remove: remove})
	}
	v := &Verdict{Gateway: &snapshot.Settings{ID: "gw_1"}, client: netip.MustParseAddr("fe80::1%a b")}
	v.requestEdits = snapshot.Edits{
		Route:   compile(map[string]string{"x_b": "route", "X-D": "${owner}"}, "X-C"),
		Gateway: compile(map[string]string{"X-A": "${gateway_id}/${client_ip}", "X-B": "gateway", "X-C": "gateway", "X-D": "gateway", "X-E": "a${key_id}", "X-F": "${subject}", "X-G": "$"}),
	}
	var got []string
	v.EachHeader(v.RequestEdits(), "req_1", func(name, value string) { got = append(got, name+"="+value) })
	if want := "x_b=route X-A=gw_1/fe80::1%25a%20b X-G=$"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if v.ResponseEdits() != nil {
		t.Error("got rules for the response, want none")
	}
}

// Guarantee: what the variables of all rules become has a bound, whatever a token says: a subject of more than 255 bytes is its SHA-256, as
// in records.
func TestLongSubjectsInHeaders(t *testing.T) {
	set := map[string]string{}
	for i := range 32 {
		set[fmt.Sprint("X-", i)] = "${subject}"
	}
	rules := snapshot.CompileHeaderRules(&gateway.HeaderRules{Set: set})
	for length, want := range map[int]int{255: 3 * 255, 5_000: 64} {
		v := &Verdict{Gateway: &snapshot.Settings{ID: "gw_1"}, Principal: &token.Principal{Subject: strings.Repeat(",", length)}}
		v.requestEdits = snapshot.Edits{Gateway: rules}
		size := 0
		v.EachHeader(v.RequestEdits(), "req_1", func(_, value string) { size += len(value) })
		if size != 32*want {
			t.Errorf("a subject of %d bytes: got %d bytes of values, want %d", length, size, 32*want)
		}
	}
}
