package acme_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/acme"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Guarantee: attempts that fail are a minute apart at first, then twice as far each time, and a day at most.
func TestBackoff(t *testing.T) {
	last := time.Duration(0)
	for n := 1; n < 100; n++ {
		wait := acme.Backoff(n)
		if want := min(max(2*last, acme.MinBackoff), acme.MaxBackoff); wait != want {
			t.Fatalf("after %d failures: got %v, want %v", n, wait, want)
		}
		last = wait
	}
	if last != acme.MaxBackoff {
		t.Errorf("got %v at last", last)
	}
}

// Guarantee: a certificate about which the CA says nothing is renewed when a third of its life is left, a tenth of that earlier or later.
func TestRenewAt(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		life := time.Duration(rapid.Int64Range(int64(time.Hour), int64(400*24*time.Hour)).Draw(r, "life"))
		at := acme.RenewAt(epoch, epoch.Add(life), rapid.Float64Range(0, 1).Draw(r, "chance"))
		left, third := epoch.Add(life).Sub(at), life/3
		if left < third-third/10-time.Second || left > third+third/10+time.Second {
			r.Fatalf("of %v, %v are left", life, left)
		}
	})
}

// Guarantee: whatever becomes of attempts, something is due by the time of the next one, a certificate is never lost, and the record is the
// same after it was stored. certificate.failed is due at most once in a day of failures, and again after a success.
func TestAttemptsModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		now, c := epoch, acme.Certificate{}
		c.NextAt = now
		failures, chain := 0, ""
		var raised time.Time
		for range rapid.IntRange(1, 30).Draw(r, "attempts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(r, "wait")))
			c.Begin(now, acme.Challenge{Token: "t", KeyAuthorization: "k"})
			failures++
			if c.Failures != failures || !c.NextAt.Equal(now.Add(acme.Backoff(failures))) {
				r.Fatalf("an attempt that has begun is %+v", c)
			}
			if rapid.Bool().Draw(r, "succeeds") {
				chain, failures, raised = rapid.StringN(1, 5, -1).Draw(r, "chain"), 0, time.Time{}
				c.Put(now, &acme.Issued{Chain: chain, NotBefore: now, NotAfter: now.Add(90 * 24 * time.Hour), RenewAt: now.Add(60 * 24 * time.Hour)})
			} else if raise := c.Fail(now, "no"); raise != (raised.IsZero() || now.Sub(raised) >= acme.MaxBackoff) {
				r.Fatalf("at %v: raised %v, the last time at %v", now, raise, raised)
			} else if raise {
				raised = now
			}
			if c.Chain != chain || c.Challenge != (acme.Challenge{}) || c.DueAt().After(c.NextAt) || (c.LastError == "") != (failures == 0) {
				r.Fatalf("got %+v after %d failures", c, failures)
			}
			text, err := json.Marshal(&c.Progress)
			var stored acme.Progress
			if err != nil || json.Unmarshal(text, &stored) != nil || !reflect.DeepEqual(stored, c.Progress) {
				r.Fatalf("stored as %s, read as %+v, %v", text, stored, err)
			}
		}
	})
}

// Guarantee: the state is what the certificate is good for, and an end is reported 14 days before, or a sixth of a short life.
func TestStateAndExpiry(t *testing.T) {
	c := acme.Certificate{}
	states := []acme.State{c.State(epoch)}
	c.LastError = "no"
	states = append(states, c.State(epoch))
	c.Put(epoch, &acme.Issued{Chain: "x", NotBefore: epoch, NotAfter: epoch.Add(90 * 24 * time.Hour)})
	c.LastError = "no"
	states = append(states, c.State(epoch), c.State(c.NotAfter))
	if want := []acme.State{acme.Pending, acme.Failed, acme.Valid, acme.Expired}; !reflect.DeepEqual(states, want) {
		t.Errorf("got %v, want %v", states, want)
	}
	if at := c.ExpiringAt(); !at.Equal(c.NotAfter.Add(-14 * 24 * time.Hour)) {
		t.Errorf("reported at %v", at)
	}
	c.NotAfter = epoch.Add(6 * 24 * time.Hour)
	if at := c.ExpiringAt(); !at.Equal(epoch.Add(5 * 24 * time.Hour)) {
		t.Errorf("a short life is reported at %v", at)
	}
	if c.ExpiryRaised = true; !c.ExpiringAt().IsZero() {
		t.Error("it is reported twice")
	}
}

// Guarantee: the registered domain of a hostname is the part below a public suffix.
func TestDomain(t *testing.T) {
	for host, want := range map[string]string{"a.b.example.com": "example.com", "example.com": "example.com", "x.example.co.uk": "example.co.uk", "com": "com", "intra": "intra", "a.intra": "a.intra"} {
		if got := acme.Domain(host); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
	}
}

// Guarantee: the reason of a failure has 1,000 bytes at most, and no half of a character.
func TestReasonIsBounded(t *testing.T) {
	for n := range 4 {
		var c acme.Certificate
		c.Fail(epoch, strings.Repeat("x", n)+strings.Repeat("€", 400))
		if len(c.LastError) > 1000 || len(c.LastError) < 995 || !utf8.ValidString(c.LastError) {
			t.Errorf("got %d bytes: %q", len(c.LastError), c.LastError)
		}
	}
}
