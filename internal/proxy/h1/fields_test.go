package h1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
)

// edited returns the head that the client gets for the head of an upstream's response, and the
// shortest time of several attempts to edit it.
func edited(t *testing.T, head string) (out string, took time.Duration) {
	t.Helper()
	var p http1.ResponseParser
	var r http1.Response
	if done, err := p.Parse([]byte(head), &r); !done || err != nil {
		t.Fatalf("the head of %d bytes was not parsed: %v, %v", len(head), done, err)
	}
	took = time.Hour
	for range 5 {
		var w responseWriter
		w.begin(writerState{verdict: &admit.Verdict{}, closing: func() bool { return false }})
		start := time.Now()
		w.final([]byte(head), &r, http1.ByLength, false)
		took = min(took, time.Since(start))
		out = string(w.head)
	}
	return out, took
}

// Guarantee: an upstream cannot keep a core busy with a long list in Connection: the time
// for a head does not grow with the number of its fields times the length of that list.
func TestLongConnectionListIsReadOnce(t *testing.T) {
	head := func(fields int) string {
		var b strings.Builder
		b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
		for i := range fields {
			fmt.Fprintf(&b, "F%03d: v\r\n", i)
		}
		b.WriteString("Connection: " + strings.Repeat("x,", 120<<10) + "y\r\n\r\n")
		return b.String()
	}
	_, few := edited(t, head(5))
	_, many := edited(t, head(500))
	if many > 20*few {
		t.Errorf("a head of 500 fields took %v, want no more than twenty times the %v of one of 5", many, few)
	}
}

// Guarantee: fields that Connection names are removed, whatever the letter case and however long
// the list, except Via, Host and Content-Length.
func TestFieldsNamedByConnection(t *testing.T) {
	for _, length := range []int{0, 156, 356, 100 << 10} { // on both sides of the 256 bytes from which on the list is indexed
		t.Run(fmt.Sprintf("behind %d bytes", length), func(t *testing.T) {
			list := strings.Repeat("x,", length/2) + " one\t, ,TWO,via,Content-length"
			out, _ := edited(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nONE: 1\r\nTwo: 2\r\nTwoo: 3\r\nVia: 1.1 u\r\nConnection: "+list+
				"\r\nThree: 3\r\nConnection: Three\r\n\r\n")
			for _, field := range []string{"ONE:", "Two:", "Connection: x", "Three:"} {
				if strings.Contains(out, field) {
					t.Errorf("the field %q passed: %q", field, out)
				}
			}
			for _, field := range []string{"Twoo: 3\r\n", "Via: 1.1 u\r\n", "Content-Length: 0\r\n"} {
				if !strings.Contains(out, field) {
					t.Errorf("the field %q did not pass: %q", field, out)
				}
			}
		})
	}
}
