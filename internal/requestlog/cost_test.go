package requestlog

import (
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: the explanation of a cost has its units, what was read, why it is unknown, and the reserve.
func TestExplainCost(t *testing.T) {
	for want, c := range map[string]accesslog.Cost{
		"1,204 tokens: prompt_tokens 1,000 × 1, completion_tokens 51 × 4; reserved 2,000": {Meter: "tokens", Units: 1204, Reserved: 2000, Read: "prompt_tokens 1,000 × 1, completion_tokens 51 × 4"},
		"3 requests: reserved 3": {Meter: "requests", Units: 3, Reserved: 3},
		"16,000 tokens: unknown, because the exchange did not complete; reserved 1":                                                                                       {Meter: "tokens", Units: 16000, Reserved: 1, Unknown: "incomplete"},
		"9 tokens: input 9 × 1, output missing; unknown, because the response does not have the field or header, or its Content-Type is not one that is read; reserved 0": {Meter: "tokens", Units: 9, Unknown: "missing", Read: "input 9 × 1, output missing"},
		"9 tokens: unknown, because the number is above 9,007,199,254,740,991; reserved 9":                                                                                {Meter: "tokens", Units: 9, Reserved: 9, Unknown: "too_large"},
	} {
		if got := ExplainCost(&c); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Guarantee: every reason for an unknown cost is said in words.
func TestReasonsOfUnknownCostsHaveWords(t *testing.T) {
	for _, r := range cost.Reasons() {
		if words := whyUnknown(r.String()); words == r.String() || !strings.Contains(words, " ") {
			t.Errorf("%s: got %q, want it in words", r, words)
		}
	}
}

// Guarantee: requests with a cost are in the log, whatever their status, and the filter tells them from those that were
// refused or failed.
func TestRequestsWithACostBelong(t *testing.T) {
	text := string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 7, Reserved: 9}))
	for _, c := range []struct {
		record accesslog.Record
		want   Belonging
		check  string
	}{
		{accesslog.Record{Status: 200}, Charged, "upstream"},
		{accesslog.Record{Status: 404, Result: accesslog.Forwarded}, Charged, "upstream"},
		{accesslog.Record{Status: 499, Result: accesslog.Abandoned}, Charged, "client"},
		{accesslog.Record{Status: 503, Result: accesslog.Forwarded}, Ended, "upstream"},
		{accesslog.Record{Status: 429, Result: accesslog.Forwarded}, Ended, "upstream"},
		{accesslog.Record{Status: 504, Result: accesslog.TimedOut}, Ended, "timeout"},
		{accesslog.Record{Status: 200, Reason: accesslog.KeyWasRevoked}, Ended, "key"},
		{accesslog.Record{Status: 200, Part: accesslog.Started}, NotKept, "upstream"},
	} {
		e := accesslog.Entry{Record: c.record, Cost: text}
		e.Account = id.NewFast()
		if got := Belongs(&e); got != c.want {
			t.Errorf("%+v: Belongs is %d, want %d", c.record, got, c.want)
		}
		r := NewRecord(&e)
		got := r.Request()
		if want := []accesslog.Cost{{Meter: "tokens", Units: 7, Reserved: 9}}; !slices.Equal(got.Costs, want) || got.Decision.Check != c.check {
			t.Errorf("%+v: got the costs %v and the check %s, want %v and %s", c.record, got.Costs, got.Decision.Check, want, c.check)
		}
		if c.want == NotKept {
			continue
		}
		charged, other := Filter{Result: ResultCharged}, Filter{}
		if is := c.want == Charged; charged.Matches(&r) != is || other.Matches(&r) == is {
			t.Errorf("%+v: the filter charged matches: %t, and no filter: %t", c.record, charged.Matches(&r), other.Matches(&r))
		}
	}
}
