package token

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/issuer"
)

// stateOf returns an issuer without keys, as one state of it.
func stateOf(t testing.TB, id, accountID string, generation uint64, denials *issuer.Denials) *Issuer {
	t.Helper()
	r := record()
	r.ID, r.AccountID, r.JWKS = id, accountID, ""
	i, err := NewIssuer(r, nil, denials, generation)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// numbered returns the digest of the n-th token.
func numbered(n int) digest { return digestOf(strconv.Itoa(n)) }

// Guarantee: the digest of a token is its SHA-256, whatever its length, and a text that is too long has that of none.
func TestDigestOf(t *testing.T) {
	for _, n := range []int{0, 1, usualBytes, usualBytes + 1, MaxBytes} {
		if text := strings.Repeat("x", n); digestOf(text) != sha256.Sum256([]byte(text)) {
			t.Errorf("%d bytes: got another digest", n)
		}
	}
	if digestOf(strings.Repeat("x", MaxBytes+1)) != (digest{}) {
		t.Error("a text that is too long has a digest")
	}
}

// memoryModel is what a memory must do: all that it was given, without bounds.
type memoryModel map[string]struct {
	generation uint64
	until      time.Time
	subject    string
}

// Guarantee: whatever happens, a memory returns only tokens that were remembered for one of the gateway's issuers in its
// present state, have not ended and are not denied; it keeps its bounds; and its counts are those of what it has.
func TestMemoryModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		maxTokens := rapid.IntRange(1, 12).Draw(r, "tokens")
		maxBytes := rapid.IntRange(1, 12).Draw(r, "bytes") * (rememberedBytes + principalBytes + 4)
		m, model := newMemory(maxTokens, maxBytes), memoryModel{}
		var issuers []*Issuer
		for n := range 4 {
			issuers = append(issuers, stateOf(t, "iss_"+strconv.Itoa(n), "acct_"+strconv.Itoa(n/2), 1, nil))
		}
		at := now
		for range rapid.IntRange(1, 80).Draw(r, "steps") {
			n, which := rapid.IntRange(0, 15).Draw(r, "token"), rapid.IntRange(0, 3).Draw(r, "issuer")
			i := issuers[which]
			key := fmt.Sprint(n, i.ID())
			switch rapid.IntRange(0, 9).Draw(r, "step") {
			case 0, 1, 2, 3:
				until := at.Add(time.Duration(rapid.IntRange(1, 10).Draw(r, "life")) * time.Second)
				subject := "u" + strconv.Itoa(n%4)
				if i.denials.Denies(at, subject, "", at) {
					continue
				}
				m.remember(numbered(n), i, i.denials.Version(), &Principal{IssuerID: i.ID(), Subject: subject, IssuedAt: at, RefusedAt: until})
				model[key] = struct {
					generation uint64
					until      time.Time
					subject    string
				}{i.generation, until, subject}
			case 4:
				issuers[which] = stateOf(t, i.ID(), i.AccountID(), i.generation+1, i.denials)
			case 5:
				i.denials.Put(issuer.Denial{ID: "d", Subject: "u" + strconv.Itoa(n%4), Until: at.Add(3 * time.Second)})
			case 6:
				i.denials.Remove("d")
			case 7:
				at = at.Add(time.Duration(rapid.IntRange(1, 4).Draw(r, "seconds")) * time.Second)
			case 8:
				m.Trim(at, func(id string) *Issuer { return issuers[id[4]-'0'] })
			default:
				of := issuers[:which+1]
				p := m.find(numbered(n), of, at)
				if p == nil {
					continue
				}
				i := issuers[p.IssuerID[4]-'0']
				one := model[fmt.Sprint(n, p.IssuerID)]
				if one.subject != p.Subject || one.generation != i.generation || !at.Before(one.until) || i.denials.Denies(at, p.Subject, "", p.IssuedAt) {
					r.Fatalf("found %+v, which is not valid: %+v", p, one)
				}
				if int(p.IssuerID[4]-'0') > which {
					r.Fatalf("found a token of %s, which is not one of the gateway's", p.IssuerID)
				}
			}
			checkCounts(r, m)
		}
	})
}

// checkCounts compares what a memory counts with what it has.
func checkCounts(r *rapid.T, m *Memory) {
	tokens, bytes, inMaps := 0, 0, 0
	for _, a := range m.accounts {
		ofAccount := 0
		for one := a.oldest; ; {
			tokens, ofAccount = tokens+1, ofAccount+one.bytes
			if one = one.next; one == a.oldest {
				break
			}
		}
		if ofAccount != a.bytes || m.largest[a.index] != a || m.largest[0].bytes < a.bytes {
			r.Fatalf("account %s: counted %d bytes at %d, has %d", a.id, a.bytes, a.index, ofAccount)
		}
		bytes += ofAccount
	}
	for i := range m.shards {
		for _, one := range m.shards[i].tokens {
			for ; one != nil; one = one.same {
				inMaps++
			}
		}
	}
	if counted, countedBytes := m.Len(); counted != tokens || countedBytes != bytes || inMaps != tokens || tokens > m.maxTokens || bytes > m.maxBytes {
		r.Fatalf("counted %d tokens of %d bytes; has %d of %d, %d in maps; at most %d of %d", counted, countedBytes, tokens, bytes, inMaps, m.maxTokens, m.maxBytes)
	}
}

// Guarantee: what was remembered is found until it ends, if there is room.
func TestRememberedTokensAreFound(t *testing.T) {
	m := NewMemory()
	i := stateOf(t, "iss_1", "acct_1", 1, nil)
	for n := range 1000 {
		m.remember(numbered(n), i, 0, &Principal{IssuerID: "iss_1", RefusedAt: now.Add(time.Minute)})
	}
	for n := range 1000 {
		if m.find(numbered(n), []*Issuer{i}, now) == nil {
			t.Fatalf("token %d is forgotten", n)
		}
	}
	if m.find(numbered(1), []*Issuer{i}, now.Add(time.Minute)) != nil {
		t.Error("a token that has ended is found")
	}
}

// Guarantee: a change of the issuer or of its keys, and a denial, are in force for remembered tokens at once. A denial of
// another subject costs no new check of the signature.
func TestChangesDropRememberedTokens(t *testing.T) {
	m, denials := NewMemory(), &issuer.Denials{}
	i := stateOf(t, "iss_1", "acct_1", 1, denials)
	m.remember(numbered(1), i, denials.Version(), &Principal{IssuerID: "iss_1", Subject: "u1", RefusedAt: now.Add(time.Minute)})
	found := func(i *Issuer) bool { return m.find(numbered(1), []*Issuer{i}, now) != nil }
	if found(stateOf(t, "iss_1", "acct_1", 2, denials)) {
		t.Error("it is found after a change of the issuer")
	}
	denials.Put(issuer.Denial{ID: "1", Subject: "u2", Until: now.Add(time.Hour)})
	if !found(i) {
		t.Error("it is not found after a denial of another subject")
	}
	denials.Put(issuer.Denial{ID: "2", Subject: "u1", Until: now.Add(time.Hour)})
	if found(i) {
		t.Error("it is found after a denial of its subject")
	}
	denials.Remove("2")
	if !found(i) {
		t.Error("it is not found after the denial was deleted")
	}
}

// Guarantee: one token may be remembered for issuers of several accounts, each by itself.
func TestOneTokenOfTwoIssuers(t *testing.T) {
	issuers := []*Issuer{stateOf(t, "iss_0", "acct_0", 1, nil), stateOf(t, "iss_1", "acct_1", 1, nil), stateOf(t, "iss_2", "acct_2", 1, nil)}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		m := NewMemory()
		for _, i := range issuers {
			m.remember(numbered(1), i, 0, &Principal{IssuerID: i.ID(), RefusedAt: now.Add(time.Minute)})
		}
		gone := [3]bool{}
		for _, next := range order {
			gone[next] = true
			m.Trim(now, func(id string) *Issuer {
				if n := id[4] - '0'; !gone[n] {
					return issuers[n]
				}
				return nil
			})
			for n, i := range issuers {
				if p := m.find(numbered(1), []*Issuer{i}, now); (p == nil) != gone[n] || p != nil && p.IssuerID != i.ID() {
					t.Errorf("without %v: the token of issuer %d is forgotten, or found too long: %+v", gone, n, p)
				}
			}
		}
	}
}

// Guarantee: a denial that is made while a token is checked is in force for it, although the token was verified before.
func TestDenialDuringTheCheck(t *testing.T) {
	m, denials := NewMemory(), &issuer.Denials{}
	i := stateOf(t, "iss_1", "acct_1", 1, denials)
	version := denials.Version()
	denials.Put(issuer.Denial{ID: "1", Subject: "u1", Until: now.Add(time.Hour)})
	m.remember(numbered(1), i, version, &Principal{IssuerID: "iss_1", Subject: "u1", RefusedAt: now.Add(time.Minute)})
	if m.find(numbered(1), []*Issuer{i}, now) != nil {
		t.Error("the denied token is found")
	}
}

// Guarantee: an account that brings any number of tokens displaces none of an account that has fewer, and tokens that are
// in use stay.
func TestFloodDisplacesOnlyItself(t *testing.T) {
	m := newMemory(100, MaxRememberedBytes)
	small, large := stateOf(t, "iss_1", "acct_1", 1, nil), stateOf(t, "iss_2", "acct_2", 1, nil)
	for n := range 20 {
		m.remember(numbered(n), small, 0, &Principal{IssuerID: "iss_1", RefusedAt: now.Add(time.Minute)})
	}
	inUse := numbered(1 << 20)
	m.remember(inUse, large, 0, &Principal{IssuerID: "iss_2", RefusedAt: now.Add(time.Minute)})
	for n := range 5000 {
		m.remember(numbered(1000+n), large, 0, &Principal{IssuerID: "iss_2", RefusedAt: now.Add(time.Minute)})
		if m.find(inUse, []*Issuer{large}, now) == nil {
			t.Fatalf("a token that is used all the time is forgotten after %d others", n)
		}
	}
	for n := range 20 {
		if m.find(numbered(n), []*Issuer{small}, now) == nil {
			t.Errorf("token %d of the small account is forgotten", n)
		}
	}
	if tokens, _ := m.Len(); tokens != 100 {
		t.Errorf("got %d tokens, want 100", tokens)
	}
}

// Guarantee: a memory has at most 262,144 tokens and 64 MB on a node, and what it counts is what the tokens take, within
// a fourth.
func TestMemoryIsBounded(t *testing.T) {
	m := newMemory(MaxRemembered, 1<<20)
	i := stateOf(t, "iss_1", "acct_1", 1, nil)
	for n := range 10_000 {
		m.remember(numbered(n), i, 0, &Principal{IssuerID: "iss_1", Subject: strconv.Itoa(n), RefusedAt: now.Add(time.Minute)})
	}
	if _, bytes := m.Len(); bytes > 1<<20 {
		t.Errorf("got %d bytes, want at most a megabyte", bytes)
	}
	m.remember(numbered(1<<20), i, 0, &Principal{IssuerID: "iss_1", Subject: string(make([]byte, 1<<20)), RefusedAt: now.Add(time.Minute)})
	if m.find(numbered(1<<20), []*Issuer{i}, now) != nil {
		t.Error("a token that is larger than the memory is remembered")
	}
	if MaxRemembered != 262_144 || MaxRememberedBytes != 64<<20 {
		t.Errorf("the bounds are not those of the contract")
	}
}

// Guarantee: a memory is safe for concurrent use. The race detector looks on.
func TestMemoryConcurrently(t *testing.T) {
	m := newMemory(50, MaxRememberedBytes)
	issuers := []*Issuer{stateOf(t, "iss_1", "acct_1", 1, nil), stateOf(t, "iss_2", "acct_2", 1, nil)}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range 2000 {
				i := issuers[(n+worker)%2]
				d := numbered(n % 97)
				if p := m.find(d, issuers, now); p == nil {
					m.remember(d, i, i.denials.Version(), &Principal{IssuerID: i.ID(), RefusedAt: now.Add(time.Minute)})
				}
				switch n % 500 {
				case 100:
					m.Trim(now, func(id string) *Issuer { return issuers[id[4]-'1'] })
				case 200:
					i.denials.Put(issuer.Denial{ID: "1", Subject: "u1", Until: now.Add(time.Hour)})
				}
			}
		})
	}
	all.Wait()
	if tokens, _ := m.Len(); tokens > 50 {
		t.Errorf("got %d tokens, want at most 50", tokens)
	}
}

// Guarantee: a remembered token costs no allocation.
func TestRememberedTokenAllocatesNothing(t *testing.T) {
	v, token, issuers := remembering(t)
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := v.Verify(ctx, token, issuers, client(1)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %g allocations, want none", n)
	}
}

// remembering returns a Verifier that remembers a token, as long as a provider's usually is.
func remembering(t testing.TB) (*Verifier, string, []*Issuer) {
	t.Helper()
	i := compile(t, func(r *issuer.Issuer) { r.DefaultScopes = []string{"read"} })
	token := mint(t, "rsa", "RS256", `{"alg":"RS256","kid":"rsa","typ":"JWT"}`, fmt.Sprintf(
		`{"iss":"https://login.example.com/","aud":["api"],"sub":"auth0|65f1a0b2c3d4e5f6a7b8c9d0","azp":"my-client","iat":1767225600,"exp":1767226200,"jti":"5c4f2f0e-55a7-4f6c-9d43-5c6a2f7d8e90","x":%q}`,
		strings.Repeat("x", 40)))
	v := New(Config{Now: func() time.Time { return now }})
	if _, err := v.Verify(context.Background(), token, []*Issuer{i}, client(1)); err != nil {
		t.Fatal(err)
	}
	return v, token, []*Issuer{i}
}

// BenchmarkRemembered is a token that is remembered: at most a microsecond, without allocations (identity.md, section 4).
func BenchmarkRemembered(b *testing.B) {
	v, token, issuers := remembering(b)
	ctx := context.Background()
	b.ReportMetric(float64(len(token)), "token-bytes")
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := v.Verify(ctx, token, issuers, client(1)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkVerify is a token that is not remembered, by its algorithm.
func BenchmarkVerify(b *testing.B) {
	i := compile(b, nil)
	for _, alg := range []struct{ alg, kid string }{{"RS256", "rsa"}, {"ES256", "p256"}, {"ES384", "p384"}, {"EdDSA", "ed"}} {
		token := mint(b, alg.kid, alg.alg, fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg.alg, alg.kid), `{"iss":"https://login.example.com/","aud":"api","sub":"u1","exp":1767226200}`)
		b.Run(alg.alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, refusal := check(token, []*Issuer{i}, now); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}
