package message

import (
	"errors"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// framingOf returns the framing of a request whose head, apart from Host, is head.
func framingOf(t *testing.T, head string, upgrade bool) *Framing {
	t.Helper()
	var r http1.Request
	if done, err := new(http1.RequestParser).Parse([]byte(head+"Host: a\r\n\r\n"), &r); !done || err != nil {
		t.Fatalf("%q was not parsed: %v", head, err)
	}
	f := &Framing{}
	f.Begin(&r, upgrade, proxy.Withheld{})
	return f
}

// Guarantee: the sent body agrees with what the head declares. Anything else is an error, after which
// the connection carries no other request. The same holds after a body that does not come to its end,
// and after every upgrade, which declares nothing.
func TestFramingAgreesWithItsDeclaration(t *testing.T) {
	t.Parallel()
	const (
		length  = "POST / HTTP/1.1\r\nContent-Length: 5\r\n"
		empty   = "POST / HTTP/1.1\r\nContent-Length: 0\r\n"
		chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
		none    = "GET / HTTP/1.1\r\n"
		end     = "END" // in the place of data
	)
	for _, c := range []struct {
		name, head string
		upgrade    bool
		parts      []string
		declared   string // the fields, without CRLF
		wrong      int    // the part that is an error, from 1 on
		whole      bool
	}{
		{"all of a length", length, false, []string{"he", "llo", end}, "Content-Length: 5", 0, true},
		{"less than the length", length, false, []string{"he"}, "Content-Length: 5", 0, false},
		{"less than the length, and the end", length, false, []string{"he", end}, "Content-Length: 5", 2, false},
		{"more than the length", length, false, []string{"hello", "!"}, "Content-Length: 5", 2, false},
		{"more than the length at once", length, false, []string{"hello!"}, "Content-Length: 5", 1, false},
		{"a part after an error", length, false, []string{"hello!", "hello"}, "Content-Length: 5", 1, false},
		{"nothing of no length", empty, false, nil, "Content-Length: 0", 0, true},
		{"something of no length", empty, false, []string{"a"}, "Content-Length: 0", 1, false},
		{"chunks to their end", chunked, false, []string{"he", "llo", end}, "Transfer-Encoding: chunked", 0, true},
		{"chunks without an end", chunked, false, []string{"he", "llo"}, "Transfer-Encoding: chunked", 0, false},
		{"chunks after the end", chunked, false, []string{"he", end, "llo"}, "Transfer-Encoding: chunked", 3, false},
		{"no body", none, false, []string{end}, "", 0, true},
		{"a body that was not declared", none, false, []string{"a"}, "", 1, false},
		{"an upgrade", none, true, nil, "", 0, false},
		{"an upgrade with a length", length, true, nil, "", 0, false},
		{"an upgrade with chunks", chunked, true, nil, "", 0, false},
		{"an upgrade with a body", length, true, []string{"hello"}, "", 1, false},
	} {
		f := framingOf(t, c.head, c.upgrade)
		if got := strings.TrimSuffix(string(f.AppendTo(nil, nil, nil)), "\r\n"); got != c.declared {
			t.Errorf("%s: declared %q, want %q", c.name, got, c.declared)
		}
		for i, part := range c.parts {
			var err error
			if part == end {
				_, err = f.Finish(nil, nil)
			} else {
				_, err = f.AppendData(nil, []byte(part))
			}
			if fails := c.wrong > 0 && i+1 >= c.wrong; errors.Is(err, ErrFraming) != fails {
				t.Errorf("%s: part %d: got error %v", c.name, i+1, err)
			}
		}
		if f.Whole() != c.whole {
			t.Errorf("%s: whole is %v, want %v", c.name, f.Whole(), c.whole)
		}
		if f.Restart(); len(c.parts) == 0 && f.Whole() != c.whole {
			t.Errorf("%s: restarted, whole is %v, want %v", c.name, f.Whole(), c.whole)
		}
	}
}

// Guarantee: the head for an HTTP/2 upstream declares a body in the same way as the head for an HTTP/1.1 upstream.
func TestFramingIsDeclaredAlike(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"POST / HTTP/1.1\r\nContent-Length: 5\r\n": "content-length5",
		"POST / HTTP/1.1\r\nContent-Length: 0\r\n": "content-length0",
		"GET / HTTP/1.1\r\n":                       "",
	} {
		for _, upgrade := range []bool{false, true} {
			if upgrade {
				want = ""
			}
			name, value := framingOf(t, head, upgrade).Declared(nil, nil, nil)
			if got := name + string(value); got != want {
				t.Errorf("%q, upgrade %v: got %q, want %q", head, upgrade, got, want)
			}
		}
	}
}
