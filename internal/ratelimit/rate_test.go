package ratelimit

import (
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: ParseRate accepts the grammar of rates (contract, 4.3) and nothing else.
func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"1/s": {Count: 1, Per: time.Second}, "50/sec": {Count: 50, Per: time.Second}, "7/second": {Count: 7, Per: time.Second},
		"600/min": {Count: 600, Per: time.Minute}, "6/minute": {Count: 6, Per: time.Minute},
		"9/h": {Count: 9, Per: time.Hour}, "9/hour": {Count: 9, Per: time.Hour},
		"1000000000/day": {Count: MaxCount, Per: 24 * time.Hour},
	} {
		got, err := ParseRate(text)
		if err != nil || !got.Equal(want) || got.String() != text {
			t.Errorf("ParseRate(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "/", "1", "1/", "/s", "0/s", "01/s", "-1/s", "+1/s", "1.5/s", "1e3/s", " 1/s", "1/s ", "1 /s", "1/S", "1/ms", "1/week",
		"1/days", "1/s/s", "1000000001/s", "10000000000/s", "99999999999999999999/s", "１/s", "1/s\n",
	} {
		if got, err := ParseRate(text); fault.CodeOf(err) != fault.ValidationFailed {
			t.Errorf("ParseRate(%q) = %+v, %v, want a validation error", text, got, err)
		}
	}
}

// Guarantee: exactly the grammar is accepted, no text breaks the parser, and a rate is
// written as it was read.
func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"1/s", "600/min", "1000000000/day", "0/s", "01/h", "1000000001/s", "9/week", "/", ""} {
		f.Add(seed)
	}
	grammar := regexp.MustCompile(`\A[1-9][0-9]{0,9}/(s|sec|second|min|minute|h|hour|day)\z`)
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		count, _, _ := strings.Cut(text, "/")
		n, ok := new(big.Int).SetString(count, 10)
		valid := grammar.MatchString(text) && ok && n.Cmp(big.NewInt(MaxCount)) <= 0
		switch {
		case valid && err != nil:
			t.Fatalf("ParseRate(%q): got error %v, want success", text, err)
		case !valid && err == nil:
			t.Fatalf("ParseRate(%q) succeeded, want an error", text)
		}
		if err != nil {
			return
		}
		if rate.String() != text || rate.Count != n.Int64() || rate.IsZero() {
			t.Fatalf("ParseRate(%q) = %+v, want the same text and count", text, rate)
		}
		p := CompileRate(rate) // must not panic
		if p.Capacity() != rate.Count || p.window != int64(rate.Per/time.Second) {
			t.Fatalf("%q compiled to %+v", text, p)
		}
	})
}

// Guarantee: ParseConfig enforces the rules of a rate limit configuration.
func TestConfig(t *testing.T) {
	for _, c := range []struct{ sustained, burst, daily, per, field string }{
		{"600/min", "50/s", "100000/day", "key", "-"},
		{"", "", "5/day", "", "-"},
		{"", "50/s", "", "", "-"},
		{"600", "", "", "", "sustained"},
		{"", "x", "", "", "burst"},
		{"", "", "5/h", "", "daily"},
		{"1/s", "", "", "ip", "per"},
		{"", "", "", "key", ""},
	} {
		_, err := ParseConfig(c.sustained, c.burst, c.daily, c.per)
		if c.field == "-" {
			if err != nil {
				t.Errorf("%+v: got error %v, want success", c, err)
			}
			continue
		}
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.ValidationFailed || e.Field != c.field {
			t.Errorf("%+v: got %v, want a validation error of the field", c, err)
		}
	}
}

// Guarantee: plans.md, 7: a limit may count each address, but no daily cap does.
func TestDailyCapsDoNotCountAddresses(t *testing.T) {
	if _, err := ParseConfig("1/s", "2/s", "", PerAddress); err != nil {
		t.Error(err)
	}
	if _, err := ParseConfig("1/s", "", "9/day", PerAddress); fieldOf(err) != "daily" {
		t.Errorf("got %v, want an error of the field daily", err)
	}
	if _, err := ParseConfig("1/s", "", "", "owner"); fieldOf(err) != "per" {
		t.Errorf("got %v, want an error of the field per", err)
	}
}

// fieldOf returns the field of a validation error, or "".
func fieldOf(err error) string {
	var e *fault.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Field
}
