package sso_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/sso"
	"github.com/keygate/keygate/internal/token/tokentest"
)

const iss = "https://login.example.com"

// slow is a provider whose discovery takes a time.
type slow struct {
	mu    sync.Mutex
	takes time.Duration
	asked int
}

// requests returns how often the provider was asked.
func (s *slow) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Endpoints implements sso.Source.
func (s *slow) Endpoints(ctx context.Context, _ issuer.Source, _ bool) (*provider.Endpoints, error) {
	s.mu.Lock()
	s.asked++
	takes := s.takes
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(min(takes, issuer.FetchTime)):
	}
	if takes >= issuer.FetchTime {
		return nil, &provider.Error{Message: "the provider took longer than 10 s"}
	}
	return &provider.Endpoints{Authorization: iss + "/authorize", Token: iss + "/token", EndSession: iss + "/logout"}, nil
}

// Keys implements sso.Source.
func (s *slow) Keys(context.Context, issuer.Source, bool) (*provider.Keys, error) {
	set, err := jwk.ParseSet([]byte(tokentest.New([32]byte{1}).JWKS()))
	return &provider.Keys{Set: set, Life: -1}, err
}

// Exchange implements sso.Source.
func (s *slow) Exchange(context.Context, issuer.Source, bool, *provider.Endpoints, url.Values, string, string) (string, error) {
	return "", errors.ErrUnsupported
}

// open does not encrypt.
type open struct{}

func (open) Seal(plain []byte) ([]byte, error)  { return plain, nil }
func (open) Open(sealed []byte) ([]byte, error) { return sealed, nil }

func newProvider(t *testing.T, s *slow) *sso.Provider {
	t.Helper()
	p, err := sso.New(sso.Config{Issuer: iss, ClientID: "keygate", RedirectURL: "https://keygate.example.com/callback", Source: s, Sealer: open{}, Random: rand.Reader, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// strangers begin sign-ins and hang up after 3 s, again and again for a time.
func strangers(p *sso.Provider, number int, during time.Duration) {
	for range number {
		go func() {
			for began := time.Now(); time.Since(began) < during; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // in a bubble
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				_, _, _ = p.Begin(ctx, &sso.Request{})
				cancel()
			}
		}()
	}
}

// Guarantee: while the provider hangs, nobody waits for longer than one fetch takes, however many begin sign-ins and hang up; and
// a sign-out does not wait at all. The failure counts for a moment, so that fetches do not follow each other.
func TestHangingProviderHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: time.Hour}
		p := newProvider(t, s)
		strangers(p, 20, time.Minute)
		for range 4 {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			began := time.Now()
			if _, _, err := p.Begin(t.Context(), &sso.Request{}); fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("got %v, want fault.Unavailable", err)
			}
			if took := time.Since(began); took > issuer.FetchTime {
				t.Errorf("a sign-in was refused after %v, want %v at most", took, issuer.FetchTime)
			}
			began = time.Now()
			p.SignOutURL()
			if took := time.Since(began); took > 0 {
				t.Errorf("a sign-out waited for %v", took)
			}
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble
		if most := int(time.Minute/(5*time.Second)) + 2; s.requests() > most {
			t.Errorf("the provider was asked %d times, want %d at most", s.requests(), most)
		}
	})
}

// Guarantee: a fetch goes on though the call that began it has ended, which waits no longer; all get what it has fetched.
func TestFetchOutlivesTheCallThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: 8 * time.Second}
		p := newProvider(t, s)
		first, hangUp := context.WithTimeout(t.Context(), 3*time.Second)
		defer hangUp()
		go func() { _, _, _ = p.Begin(first, &sso.Request{}) }()
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		began := time.Now()
		if _, _, err := p.Begin(t.Context(), &sso.Request{}); err != nil || time.Since(began) > 7*time.Second || s.requests() != 1 {
			t.Errorf("got %v after %v with %d requests, want a sign-in after 7s with 1", err, time.Since(began), s.requests())
		}
		if got := p.SignOutURL(); got != iss+"/logout?client_id=keygate" {
			t.Errorf("got the URL %q for a sign-out", got)
		}

		p = newProvider(t, s)
		alone, hangUp := context.WithTimeout(t.Context(), 3*time.Second)
		defer hangUp()
		if _, _, err := p.Begin(alone, &sso.Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v of a call that has ended", err)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		if _, _, err := p.Begin(t.Context(), &sso.Request{}); err != nil || s.requests() != 2 {
			t.Errorf("got %v with %d requests after a call that has ended, want a sign-in with one more", err, s.requests()-1)
		}
	})
}
