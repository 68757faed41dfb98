package issuer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
)

var now = time.Unix(1767225600, 0)

// Guarantee: a set of denials refuses exactly the tokens that one of its denials refuses, whatever was added, replaced,
// removed and trimmed before. Its version changes with each of the former.
func TestDenialsModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d, model, at := &Denials{}, map[string]Denial{}, now
		second := func(name string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(r, name)) * time.Second
		}
		text := func(name string) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, name) }
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			version := d.Version()
			id := strconv.Itoa(rapid.IntRange(0, 9).Draw(r, "id"))
			switch rapid.IntRange(0, 8).Draw(r, "step") {
			case 8:
				d.Replace(slices.Collect(maps.Values(model)))
			case 0, 1, 2:
				one := Denial{ID: id, Until: at.Add(second("until", -2, 10))}
				switch rapid.IntRange(0, 2).Draw(r, "kind") {
				case 0:
					one.Subject = text("subject")
				case 1:
					one.JTI = text("jti")
				default:
					one.IssuedBefore = at.Add(second("issued_before", -20, 0))
				}
				d.Put(one)
				model[id] = one
				if d.Version() == version {
					r.Fatal("the version is the same after a change")
				}
			case 3:
				d.Remove(id)
				if _, had := model[id]; had == (d.Version() == version) {
					r.Fatalf("had it: %v, version %d, then %d", had, version, d.Version())
				}
				delete(model, id)
			case 4:
				at = at.Add(second("wait", 0, 3))
			case 5:
				d.Trim(at)
				for id, one := range model {
					if !at.Before(one.Until) {
						delete(model, id)
					}
				}
			default:
				subject, jti, issued := text("subject"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "jti"), time.Time{}
				if rapid.Bool().Draw(r, "iat") {
					issued = at.Add(second("iat", -25, 0))
				}
				want := false
				for _, one := range model {
					want = want || one.Denies(at, subject, jti, issued)
				}
				if got := d.Denies(at, subject, jti, issued); got != want {
					r.Fatalf("got %v for %s, %s, %v; want %v of %+v", got, subject, jti, issued, want, model)
				}
			}
			if d.Len() != len(model) {
				r.Fatalf("got %d denials, want %d", d.Len(), len(model))
			}
		}
	})
}

// Guarantee: a token that does not say when it was issued meets every issued_before; one that was issued at that moment
// does not (identity.md, section 2).
func TestIssuedBefore(t *testing.T) {
	d := Denial{IssuedBefore: now, Until: now.Add(time.Hour)}
	for issued, want := range map[time.Time]bool{{}: true, now.Add(-1): true, now: false, now.Add(1): false} {
		if got := d.Denies(now, "u", "", issued); got != want {
			t.Errorf("issued at %v: got %v, want %v", issued, got, want)
		}
	}
}

// Guarantee: of several denials of all tokens, the one that reaches furthest counts as long as it is in force, whichever
// ends first and whichever was made first.
func TestSeveralCutoffs(t *testing.T) {
	early := Denial{ID: "1", IssuedBefore: now.Add(-time.Hour), Until: now.Add(2 * time.Minute)}
	late := Denial{ID: "2", IssuedBefore: now, Until: now.Add(time.Minute)}
	far := Denial{ID: "3", IssuedBefore: now.Add(-time.Minute), Until: now.Add(3 * time.Minute)}
	for _, order := range [][]Denial{{early, late, far}, {far, late, early}, {late, far, early}} {
		d := &Denials{}
		for _, one := range order {
			d.Put(one)
		}
		for at, want := range map[time.Duration]time.Duration{0: 0, time.Minute: -time.Minute, 2 * time.Minute: -time.Minute, 3 * time.Minute: -1000 * time.Hour} {
			if !d.Denies(now.Add(at), "u", "", now.Add(want-1)) != (at == 3*time.Minute) || d.Denies(now.Add(at), "u", "", now.Add(want)) {
				t.Errorf("at %s: not all tokens issued before %s are denied, or others are", at, want)
			}
		}
	}
}

// Guarantee: a denial has exactly one of its three conditions, ends in the future, and by default when the last token that
// was issued before it has.
func TestPrepare(t *testing.T) {
	for _, tc := range []struct {
		denial      Denial
		field, want string // field "" for none
	}{
		{Denial{Subject: "u1"}, "", ""},
		{Denial{JTI: "t1", Reason: "stolen", Until: now.Add(time.Microsecond)}, "", ""},
		{Denial{IssuedBefore: now.Add(time.Minute)}, "", ""},
		{Denial{}, "subject", "is missing: give subject, jti or issued_before"},
		{Denial{Subject: "u1", JTI: "t1"}, "subject", "exactly one of"},
		{Denial{JTI: "t1", IssuedBefore: now}, "subject", "exactly one of"},
		{Denial{IssuedBefore: now.Add(time.Minute + time.Microsecond)}, "issued_before", "must not be in the future"},
		{Denial{Subject: "u1", Until: now}, "until", "must be in the future"},
		{Denial{Subject: "u\x00\u202e"}, "", ""}, // whatever a token may have
		{Denial{Subject: "u1", Reason: "a\nb"}, "reason", "control characters"},
		{Denial{Subject: "u1", Reason: strings.Repeat("a", 256)}, "reason", "at most 255 bytes"},
	} {
		d := tc.denial
		problems := fault.ProblemsOf(d.Prepare(now, 24*time.Hour, time.Minute))
		switch {
		case tc.field == "" && problems == nil:
			if tc.denial.Until.IsZero() && !d.Until.Equal(now.Add(24*time.Hour)) {
				t.Errorf("%+v: ends at %s", tc.denial, d.Until)
			}
		case len(problems) != 1 || problems[0].Field != tc.field || !strings.Contains(problems[0].Message, tc.want):
			t.Errorf("%+v: got %v, want a problem of %s that contains %q", tc.denial, problems, tc.field, tc.want)
		}
	}
	long := Denial{Subject: strings.Repeat("s", 300)}
	if err := long.Prepare(now, time.Hour, 0); err != nil || len(long.Subject) != 64 || !long.Denies(now, strings.Repeat("s", 300), "", time.Time{}) {
		t.Errorf("a long subject: got %+v, %v", long, err)
	}
}

// Guarantee: whatever denials are about, nothing is left of one that has ended or was removed.
func TestDenialsLeaveNothing(t *testing.T) {
	for name, make := range map[string]func(n int) Denial{
		"one subject":   func(int) Denial { return Denial{Subject: "u"} },
		"subjects":      func(n int) Denial { return Denial{Subject: fmt.Sprint(n)} },
		"issued_before": func(n int) Denial { return Denial{IssuedBefore: now.Add(-time.Duration(n))} },
	} {
		d := &Denials{}
		for n := range 2000 {
			one := make(n)
			one.ID, one.Until = strconv.Itoa(n), now.Add(time.Duration(n+1)*time.Second)
			d.Put(one)
		}
		d.Trim(now.Add(1000 * time.Second))
		for n := range 2000 {
			d.Remove(strconv.Itoa(n))
		}
		if d.Len() != 0 || len(d.subjects)+len(d.jtis)+len(d.before) != 0 {
			t.Errorf("%s: %d denials are left", name, d.Len())
		}
	}
}

// Guarantee: a set is safe for concurrent use. The race detector looks on.
func TestDenialsConcurrently(t *testing.T) {
	d := &Denials{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range 500 {
				id := strconv.Itoa(n*4 + worker)
				d.Put(Denial{ID: id, IssuedBefore: now.Add(time.Duration(n)), Until: now.Add(time.Hour)})
				d.Denies(now, "u", "", now)
				d.Remove(id)
				d.Trim(now)
			}
		})
	}
	all.Wait()
	if d.Len() != 0 {
		t.Errorf("%d denials are left", d.Len())
	}
}

// BenchmarkDenies is a look-up among the most denials.
func BenchmarkDenies(b *testing.B) {
	d := &Denials{}
	for n := range MaxDenials {
		d.Put(Denial{ID: strconv.Itoa(n), Subject: "u" + strconv.Itoa(n), Until: now.Add(time.Hour)})
	}
	b.ReportAllocs()
	for b.Loop() {
		d.Denies(now, "somebody", "token", now)
	}
}
