package accesslog

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Guarantee: attempts are read as they were written, and a text that was cut has no attempt that is not one.
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
		if len(b) > MaxAttempts {
			t.Fatalf("%d bytes, want at most %d", len(b), MaxAttempts)
		}
		if got := slices.Collect(Attempts(string(b))); !slices.Equal(got, all) || CountAttempts(string(b)) != len(all) {
			t.Fatalf("got %v, want %v", got, all)
		}
		got := slices.Collect(Attempts(string(b[:rapid.IntRange(0, len(b)).Draw(t, "length")])))
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
	text[0]++
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
