package provider_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/token/tokentest"
)

// issuerURL is the claim iss of the tokens of a gate.
const issuerURL = "https://i.example"

// gate is the part of a node that verifies tokens, with the keys that the world has stored.
type gate struct {
	w        *world
	fetcher  *provider.Fetcher
	verifier *token.Verifier

	mu         sync.Mutex
	issuer     *token.Issuer
	document   string // of the keys of issuer
	generation uint64
}

// gate starts a node of the issuer i, which remembers no token.
func (w *world) gate() *gate {
	g := &gate{w: w, fetcher: w.start()}
	g.verifier = token.New(token.Config{Now: time.Now, Renew: func(ctx context.Context, i *token.Issuer) bool {
		g.fetcher.Renew(ctx, i.AccountID(), i.ID())
		return g.current() != i
	}})
	return g
}

// current returns the issuer as the node's snapshot has it. The same keys are the same issuer.
func (g *gate) current() *token.Issuer {
	g.w.mu.Lock()
	document := g.w.records["i"].Document
	g.w.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.issuer == nil || document != g.document {
		record := issuer.Issuer{ID: "i", AccountID: "acme", Name: "login", Settings: issuer.Settings{URL: issuerURL, Audiences: []string{"api"}}}
		record.Document = document
		g.generation++
		i, err := token.NewIssuer(&record, nil, nil, g.generation)
		if err != nil {
			g.w.t.Fatal(err)
		}
		g.issuer, g.document = i, document
	}
	return g.issuer
}

// verify verifies a token that a client has sent.
func (g *gate) verify(compact string, client clientip.Group) error {
	for {
		if _, err := g.verifier.Verify(g.w.t.Context(), compact, []*token.Issuer{g.current()}, client); !errors.Is(err, token.ErrChanged) {
			return err
		}
	}
}

func address(a, b, c byte) clientip.Group {
	return clientip.GroupOf(netip.AddrFrom4([4]byte{10, a, b, c}))
}

// junk returns a token that nobody has signed, with a kid that nobody has.
func junk() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"EdDSA","kid":"%d"}`, rand.Uint64())) + junkRest
}

var junkRest = "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+issuerURL+`"}`)) + "." + strings.Repeat("A", 86)

// sendJunk sends n tokens at once, each from an address of its own.
func (g *gate) sendJunk(n int) {
	for range n {
		a := rand.Uint32()
		if err := g.verify(junk(), address(200, byte(a>>8), byte(a))); err == nil {
			g.w.t.Error("a token that nobody has signed is valid")
		}
	}
}

// clients are clients with addresses of their own, each of which has a token of its own.
type clients struct {
	g        *gate
	lifetime time.Duration // of a token
	tokens   []string
	asked    int
	refused  int
	last     time.Time // when a token was refused the last time
}

// renew gives each client a new token of the signer.
func (c *clients) renew(s *tokentest.Signer) {
	now := time.Now()
	for n := range c.tokens {
		c.tokens[n] = s.Token(issuerURL, now, map[string]any{"sub": fmt.Sprint("user-", n), "exp": now.Add(c.lifetime).Unix(), "iat": now.Unix()})
	}
}

// ask makes a request with each client at once, and returns when all of them are answered.
func (c *clients) ask() {
	var group sync.WaitGroup
	errs := make([]error, len(c.tokens))
	for n, compact := range c.tokens {
		group.Go(func() { errs[n] = c.g.verify(compact, address(1, byte(n>>8), byte(n))) })
	}
	group.Wait()
	for _, err := range errs {
		if c.asked++; err != nil {
			c.refused++
			c.last = time.Now()
		}
	}
}

// rotating starts a node whose provider has the keys of the signer, and clients with tokens of it.
func (w *world) rotating(first *tokentest.Signer, n int) (*gate, *clients) {
	w.t.Helper()
	w.set(func() { w.jwks = first.JWKS() })
	w.issuer("acme", "i")
	w.set(func() { w.records["i"].URL, w.records["i"].JWKSURL = issuerURL, "" })
	g := w.gate()
	w.sleep(6 * time.Second)
	c := &clients{g: g, lifetime: 10 * time.Minute, tokens: make([]string, n)}
	c.renew(first)
	if c.ask(); c.refused > 0 || w.took("i") != 1 {
		w.t.Fatalf("%d tokens of the first key are refused", c.refused)
	}
	return g, c
}

// Guarantee: identity.md, section 4. A rotation of the provider's keys under load refuses nothing if each key is published for
// 6 minutes before it signs and until its last token has expired: even if the fetches come as late as they may, with junk
// that keeps other tokens from causing any, and without.
func TestRotationWithAnOverlap(t *testing.T) {
	for _, random := range []float64{0, 0.5, 0.999999} {
		synctestWorld(t, fmt.Sprint("random ", random), func(w *world) {
			w.random = func() float64 { return random }
			signer := tokentest.Named("0", [32]byte{0})
			g, c := w.rotating(signer, 20)
			for n := range 6 {
				next := tokentest.Named(fmt.Sprint(n+1), [32]byte{byte(n + 1)})
				w.set(func() { w.jwks = next.JWKS(signer) })
				for minute := range 17 {
					switch minute {
					case 6:
						signer = next
					case 16:
						w.set(func() { w.jwks = next.JWKS() })
					}
					c.renew(signer)
					for range 30 {
						if n%2 == 0 {
							g.sendJunk(2)
						}
						c.ask()
						w.sleep(2 * time.Second)
					}
				}
				w.sleep(time.Duration(n*7) * time.Second) // so that rotations and fetches meet at different times
			}
			if c.refused > 0 {
				t.Errorf("%d of %d requests were refused, the last one at %v", c.refused, c.asked, c.last)
			}
		})
	}
}

// Guarantee: identity.md, section 4. A rotation without an overlap, even under the same kid, causes one fetch, for which the first
// tokens of the new key wait, and none of them is refused. If junk has caused a fetch before, they are refused until 30 s
// after it, and not longer. Tokens of the former key are refused from then on.
func TestRotationWithoutAnOverlap(t *testing.T) {
	for name, kid := range map[string]string{"another kid": "b", "the same kid": "a"} {
		for _, before := range []bool{false, true} {
			synctestWorld(t, fmt.Sprintf("%s, junk before: %t", name, before), func(w *world) {
				w.random = func() float64 { return 0.5 }
				former, next := tokentest.Named("a", [32]byte{1}), tokentest.Named(kid, [32]byte{2})
				g, c := w.rotating(former, 200)
				old := c.tokens[0]
				w.sleep(time.Minute)
				want, latest := 1, time.Now()
				if before {
					want, latest = 2, latest.Add(provider.RenewEvery)
					g.sendJunk(1)
					w.sleep(time.Second)
				}
				w.takes(time.Second)
				w.set(func() { w.jwks = next.JWKS() })
				c.renew(next)
				for range 60 {
					c.ask()
					w.sleep(time.Second)
				}
				if n := w.took("i"); n != want {
					t.Errorf("got %d fetches, want %d", n, want)
				}
				if c.refused > 0 && (!before || c.last.After(latest)) || before && c.refused == 0 {
					t.Errorf("%d requests were refused, the last one %v after the junk; want them until %v, and none without junk", c.refused, c.last.Sub(latest)+provider.RenewEvery, provider.RenewEvery)
				}
				if err := g.verify(old, address(2, 0, 1)); err == nil {
					t.Error("a token of the former key is valid")
				}
			})
		}
	}
}

// Guarantee: identity.md, section 4. 10,000 junk tokens a second with random values of kid cause 2 fetches a minute, and refuse nobody.
// They come around the times at which a token may cause a fetch.
func TestJunkCausesFewFetches(t *testing.T) {
	synctestWorld(t, "", func(w *world) {
		w.random = func() float64 { return 0.999999 }
		signer := tokentest.Named("a", [32]byte{1})
		g, c := w.rotating(signer, 20)
		w.takes(100 * time.Millisecond)
		w.sleep(time.Minute)
		w.took("i")
		var group sync.WaitGroup
		for second := range 60 {
			for range 10 {
				if second%30 < 2 || second%30 == 29 {
					group.Go(func() { g.sendJunk(1000) })
				}
				c.ask()
				w.sleep(100 * time.Millisecond)
			}
			if second%20 == 0 {
				c.renew(signer)
			}
		}
		group.Wait()
		if n := w.took("i"); n != 2 || c.refused > 0 {
			t.Errorf("a minute of junk caused %d fetches, and refused %d of %d requests; want 2, and none", n, c.refused, c.asked)
		}
	})
}

// Guarantee: identity.md, section 4. A provider that is dead for 24 hours, and a restart meanwhile, refuse no token that its
// keys can check, new ones and those that were valid before alike, whatever junk comes.
func TestDeadProviderRefusesNothing(t *testing.T) {
	synctestWorld(t, "", func(w *world) {
		signer := tokentest.Named("a", [32]byte{1})
		g, c := w.rotating(signer, 5)
		w.set(func() { w.down = func(string) error { return errors.New("dead") } })
		for minute := range 24 * 60 {
			if minute == 12*60 {
				w.stop(g.fetcher)
				g = w.gate()
				c.g = g
			}
			if minute%5 == 0 {
				c.renew(signer)
			}
			g.sendJunk(1)
			c.ask()
			w.sleep(time.Minute)
		}
		if c.refused > 0 || c.asked < 24*60*5 {
			t.Errorf("%d of %d requests were refused, the last one at %v", c.refused, c.asked, c.last)
		}
	})
}

// synctestWorld runs f as a subtest in virtual time, in a world without nodes.
func synctestWorld(t *testing.T, name string, f func(w *world)) {
	t.Helper()
	if name == "" {
		virtual(t, 0, f)
		return
	}
	t.Run(name, func(t *testing.T) { virtual(t, 0, f) })
}
