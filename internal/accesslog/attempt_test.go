package accesslog

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawUntried returns targets that were not tried, as a request may have them.
func drawUntried(t *rapid.T) (u Untried) {
	for range rapid.IntRange(0, MaxUntried+1).Draw(t, "untried") {
		since := rapid.Int64Range(0, 1<<45).Draw(t, "since")
		u.Targets = append(u.Targets, UntriedTarget{
			Target: rapid.StringN(-1, -1, maxTarget).Draw(t, "target"), State: rapid.StringN(-1, -1, maxResult).Draw(t, "state"), Reason: rapid.StringN(-1, -1, maxResult).Draw(t, "reason"),
			Since: since, Until: since + rapid.Int64Range(0, 1<<30).Draw(t, "until"), Failures: rapid.IntRange(0, 1<<20).Draw(t, "failures"),
		})
	}
	u.Count, u.AllUnhealthy = len(u.Targets), rapid.Bool().Draw(t, "all")
	return u
}

// Guarantee: attempts and the first targets that were not tried are read as they were written, and a text that was cut has none that
// is not one.
func TestAttemptText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Attempt
		var b []byte
		for range rapid.IntRange(0, 6).Draw(t, "count") {
			at := rapid.Int64Range(0, 1<<45).Draw(t, "ejected")
			a := Attempt{
				Target: rapid.StringN(-1, -1, maxTarget).Draw(t, "target"), Result: rapid.StringN(-1, -1, maxResult).Draw(t, "result"),
				Reason: Reason(rapid.Uint8().Draw(t, "reason")), Status: rapid.Uint16().Draw(t, "status"),
				Took:    time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "took")) * time.Microsecond,
				Ejected: at, EjectedUntil: at + rapid.Int64Range(0, 1<<30).Draw(t, "until"), Failures: rapid.IntRange(0, 1<<20).Draw(t, "failures"),
			}
			all = append(all, a)
			b = AppendAttempt(b, &a)
		}
		u := drawUntried(t)
		b = AppendUntried(b, &u)
		if u.Targets = u.Targets[:min(len(u.Targets), MaxUntried)]; !reflect.DeepEqual(UntriedOf(string(b)), u) {
			t.Fatalf("got %+v, want %+v", UntriedOf(string(b)), u)
		}
		if len(b) > MaxAttempts {
			t.Fatalf("%d bytes, want at most %d", len(b), MaxAttempts)
		}
		if got := slices.Collect(Attempts(string(b))); !slices.Equal(got, all) || CountAttempts(string(b)) != len(all) {
			t.Fatalf("got %v, want %v", got, all)
		}
		short := string(b[:rapid.IntRange(0, len(b)).Draw(t, "length")])
		if got := UntriedOf(short); len(short) < len(b) && (got.Count != 0 || got.Targets != nil || got.AllUnhealthy) {
			t.Fatalf("got %+v of a text that was cut, want nothing", got)
		}
		got := slices.Collect(Attempts(short))
		if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
			t.Fatalf("got %v of a text that was cut, want the first of %v", got, all)
		}
	})
}

// Guarantee: the text of a later version has no attempts, and a target that is too long is cut.
func TestAttemptTextOfOtherForms(t *testing.T) {
	long := Attempt{Target: string(make([]byte, 300)), Result: "ok"}
	text := AppendAttempt(nil, &long)
	for a := range Attempts(string(text)) {
		if len(a.Target) != maxTarget || a.Result != "ok" {
			t.Errorf("got a target of %d bytes and the result %q, want %d bytes and ok", len(a.Target), a.Result, maxTarget)
		}
	}
	text = AppendUntried(text, &Untried{Count: 1})
	text[0]++
	if u := UntriedOf(string(text)); u.Count != 0 {
		t.Errorf("got %+v of another form, want nothing", u)
	}
	if n := CountAttempts(string(text)); n != 0 {
		t.Errorf("got %d attempts of another form, want none", n)
	}
}

// Guarantee: a sink gets the upstream, the target and the attempts of a record, which do not share the memory of the request.
func TestAttemptsReachSinks(t *testing.T) {
	var got Entry
	c, err := NewCollector(Config{Sinks: []Sink{sinkFunc(func(batch []Entry) {
		got = batch[0]
		got.AttemptList = string([]byte(got.AttemptList))
	})}})
	if err != nil {
		t.Fatal(err)
	}
	text := AppendAttempt(AppendAttempt(nil, &Attempt{Target: "a:1", Result: "connect"}), &Attempt{Target: "b:2", Result: "ok"})
	want := string(text)
	c.Shard().EmitTexts(&Record{}, &Texts{Path: "/", UpstreamName: "next", Target: "b:2", AttemptList: string(text)})
	clear(text)
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got.UpstreamName != "next" || got.Target != "b:2" || got.AttemptList != want {
		t.Errorf("got %q, %q and %q, want next, b:2 and %q", got.UpstreamName, got.Target, got.AttemptList, want)
	}
}

type sinkFunc func([]Entry)

func (f sinkFunc) Take(batch []Entry) { f(batch) }
