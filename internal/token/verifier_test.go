package token

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/issuer"
)

// client returns the n-th address.
func client(n int) clientip.Group {
	return clientip.GroupOf(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}))
}

// Guarantee: an address of which 20 tokens have failed within 10 s is refused before a check until the first of them is
// 10 s old. Whatever the sequence, it is as in a list of all failures.
func TestFailuresModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f, at := NewFailures(now), now
		var model [3][]time.Time
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(0, 900).Draw(r, "wait")) * time.Millisecond)
			n := rapid.IntRange(0, 2).Draw(r, "address")
			var recent []time.Time
			for _, one := range model[n] {
				if at.Sub(one) < FailurePeriod {
					recent = append(recent, one)
				}
			}
			var want time.Time
			if len(recent) >= MaxFailures {
				want = recent[len(recent)-MaxFailures].Add(FailurePeriod)
			}
			got := f.RefusedUntil(client(n), at)
			if !got.Equal(want) {
				r.Fatalf("%d failures: got refused until %v, want %v", len(recent), got, want)
			}
			if got.IsZero() {
				f.Add(client(n), at)
				model[n] = append(recent, at)
			}
		}
	})
}

// Guarantee: the failures of at most 32,768 addresses are counted, and those of the oldest are forgotten.
func TestAddressesWithFailuresAreBounded(t *testing.T) {
	f := NewFailures(now)
	for n := range 50_000 {
		f.Add(clientip.GroupOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})), now)
	}
	counted := 0
	for i := range f.shards {
		counted += len(f.shards[i].addresses)
	}
	if counted > maxAddresses {
		t.Errorf("got %d addresses, want at most %d", counted, maxAddresses)
	}
	f.Add(client(1), now.Add(FailurePeriod))
	s := f.shard(client(1))
	if len(s.addresses) != 1 || s.first != s.last || s.first.address != client(1) {
		t.Errorf("got %d addresses after a period, want the one of the last failure", len(s.addresses))
	}
}

// Guarantee: an address that sends tokens that fail is refused without a check, but its remembered tokens pass, and so do
// the tokens of others. A new network of IPv6 below the same /64 is the same address.
func TestFailedTokensOfAnAddress(t *testing.T) {
	v, good, issuers := remembering(t)
	ctx := context.Background()
	in := func(n byte) clientip.Group {
		return clientip.GroupOf(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n}))
	}
	for n := range MaxFailures {
		if _, err := v.Verify(ctx, "junk", issuers, in(byte(n))); !isRefused(err, NotCompact) {
			t.Fatalf("token %d: got %v, want it refused", n, err)
		}
	}
	another := valid(t, `,"jti":"another"`)
	var tooMany *TooManyFailures
	if _, err := v.Verify(ctx, another, issuers, in(99)); !errors.As(err, &tooMany) || !tooMany.Until.Equal(now.Add(FailurePeriod)) {
		t.Errorf("got %v, want too many failures", err)
	}
	if _, err := v.Verify(ctx, good, issuers, in(1)); err != nil {
		t.Errorf("a remembered token: got %v", err)
	}
	if _, err := v.Verify(ctx, another, issuers, client(1)); err != nil {
		t.Errorf("another address: got %v", err)
	}
}

func isRefused(err error, reason Reason) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Reason == reason
}

// Guarantee: a token is verified once for an issuer: then it is remembered until exp and the leeway.
func TestTokenIsVerifiedOnce(t *testing.T) {
	at := now
	v := New(Config{Now: func() time.Time { return at }})
	i := compile(t, nil)
	token := valid(t, `,"scope":"read"`)
	first, err := v.Verify(t.Context(), token, []*Issuer{i}, client(1))
	if err != nil {
		t.Fatal(err)
	}
	at = now.Add(660*time.Second - 1)
	if again, err := v.Verify(t.Context(), token, []*Issuer{i}, client(1)); again != first || err != nil {
		t.Errorf("got %p, %v; want the same principal, %p", again, err, first)
	}
	at = now.Add(660 * time.Second)
	if _, err := v.Verify(t.Context(), token, []*Issuer{i}, client(1)); !isRefused(err, Expired) {
		t.Errorf("got %v, want it expired", err)
	}
}

// Guarantee: a token that is remembered for one account is not valid for another one that has an issuer with the same URL
// and other keys or audiences.
func TestIssuersWithOneURL(t *testing.T) {
	v := New(Config{Now: func() time.Time { return now }})
	mine := compile(t, nil)
	theirs := compile(t, func(r *issuer.Issuer) { r.ID, r.AccountID, r.Audiences = "iss_2", "acct_2", []string{"theirs"} })
	token := valid(t, "")
	for range 2 {
		if _, err := v.Verify(t.Context(), token, []*Issuer{mine}, client(1)); err != nil {
			t.Error(err)
		}
		if _, err := v.Verify(t.Context(), token, []*Issuer{theirs}, client(1)); !isRefused(err, WrongAudience) {
			t.Errorf("got %v, want another audience", err)
		}
	}
}

// Guarantee: signatures are checked on a bounded number of processors. A token waits for its turn for a second at most,
// and accounts take turns.
func TestSignatureWorkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(Config{Now: time.Now, Signatures: 1})
		release, err := v.slots.Take(t.Context(), "acct_2")
		if err != nil {
			t.Fatal(err)
		}
		i := compile(t, nil)
		token := mint(t, "ed", "EdDSA", `{"alg":"EdDSA"}`, fmt.Sprintf(`{"iss":"https://login.example.com/","aud":"api","sub":"u1","exp":%d}`, time.Now().Unix()+600))
		start := time.Now()
		if _, err := v.Verify(t.Context(), token, []*Issuer{i}, client(1)); !errors.Is(err, ErrBusy) || time.Since(start) != MaxSignatureWait {
			t.Errorf("got %v after %s, want ErrBusy after a second", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := v.Verify(ctx, token, []*Issuer{i}, client(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the context", err)
		}
		release()
		if _, err := v.Verify(t.Context(), token, []*Issuer{i}, client(1)); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee: however many requests bring one token at once, its signature is checked once, and a flood of tokens that
// fail gets no more checks than may fail and run at once.
func TestFloodOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(Config{Now: time.Now, Signatures: 1})
		i := compile(t, nil)
		release, err := v.slots.Take(t.Context(), "acct_1")
		if err != nil {
			t.Fatal(err)
		}
		bad := mint(t, "other", "RS256", `{"alg":"RS256","kid":"rsa"}`, `{"iss":"https://login.example.com/"}`)
		results := make(chan error, 100)
		for range cap(results) {
			go func() {
				_, err := v.Verify(t.Context(), bad, []*Issuer{i}, client(1))
				results <- err
			}()
		}
		synctest.Wait()
		release()
		refused, tooMany := 0, 0
		for range cap(results) {
			var failures *TooManyFailures
			switch err := <-results; {
			case isRefused(err, BadSignature):
				refused++
			case errors.As(err, &failures):
				tooMany++
			default:
				t.Errorf("got %v", err)
			}
		}
		if refused != MaxFailures && refused != MaxFailures+1 {
			t.Errorf("got %d checks and %d refused without one, want %d checks", refused, tooMany, MaxFailures)
		}
	})
}

// Guarantee: the words of a refusal have little of the token, in ASCII, and nothing of its signature or subject.
func TestReasonsAreShort(t *testing.T) {
	long := strings.Repeat("\u202e\x00", 500)
	for _, claims := range []string{
		fmt.Sprintf(`{"iss":%q}`, long), fmt.Sprintf(`{"iss":"https://login.example.com/","sub":"secret-subject","aud":%q}`, strings.Repeat("a", 3000)),
		`{"iss":"https://login.example.com/","aud":"api","sub":"secret-subject","exp":` + strings.Repeat("9", 3000) + `}`,
	} {
		_, refusal := check(mint(t, "ed", "EdDSA", `{"alg":"EdDSA"}`, strings.ReplaceAll(claims, `\x00`, `\u0000`)), []*Issuer{compile(t, nil)}, now)
		if refusal == nil {
			t.Fatal("it was accepted")
		}
		text := refusal.Error()
		if len(text) > 1200 || strings.Contains(text, "secret") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("got %q", text)
		}
	}
}
