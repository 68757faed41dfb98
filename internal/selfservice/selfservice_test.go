package selfservice

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/proxy"
)

// script is a Control of a test.
type script struct {
	usage  func(context.Context) (*control.HolderUsage, error)
	rotate func(context.Context, int) (*control.NewKey, error)
}

func (s *script) UsageOfHolder(ctx context.Context, _ *control.Actor, _ string) (*control.HolderUsage, error) {
	return s.usage(ctx)
}

func (s *script) RotateOwnKey(ctx context.Context, actor *control.Actor, _ string, days int) (*control.NewKey, error) {
	if actor.Kind != control.HolderActor || actor.KeyID != "key_1" {
		return nil, errors.New("not the holder")
	}
	return s.rotate(ctx, days)
}

func newService(s *script) *Service {
	return New(Config{Control: s, Now: time.Now, Account: func(accountID string) *account.Account { return &account.Account{ID: accountID} }})
}

func rotation(accountID, body string) *proxy.HolderRequest {
	return &proxy.HolderRequest{Service: admit.Rotate, AccountID: accountID, KeyID: "key_1", Body: []byte(body)}
}

// Guarantee: the body of a rotation is read as the bodies of the API: whole numbers in every form, no other fields, all
// mistakes at once.
func TestBodiesOfRotations(t *testing.T) {
	days := 0
	s := newService(&script{rotate: func(_ context.Context, n int) (*control.NewKey, error) {
		days = n
		return &control.NewKey{Key: apikey.Key{ID: "key_2"}, Secret: "kg_x"}, nil
	}})
	for body, want := range map[string]int{
		`{"overlap_days": 7}`: 7, `{"overlap_days": 7.0}`: 7, `{"overlap_days": 3e1}`: 30, "\ufeff{\"overlap_days\":1}": 1, `{"overlap_days": -5}`: 0, `{"overlap_days": 1e12}`: 1000,
	} {
		status, response, err := s.Serve(t.Context(), rotation("a", body))
		if status != 201 || err != nil || days != want || !strings.Contains(string(response), `"key":"kg_x"`) {
			t.Errorf("%s: got %d %s (%v) and %d days, want 201 and %d", body, status, response, err, days, want)
		}
	}
	for body, fields := range map[string]string{
		"": "-", "{": "-", `{"overlap_days": 1, "overlap_days": 2}`: "-", "{} {}": "-", "\xff": "-",
		"[7]": "", "null": "overlap_days", "7": "", "{}": "overlap_days", `{"overlap_days": null}`: "overlap_days", `{"overlap_days": 1.5}`: "overlap_days",
		`{"overlap_days": "7"}`: "overlap_days", `{"b": 1, "a": 2}`: "overlap_days a b",
	} {
		_, _, err := s.Serve(t.Context(), rotation("a", body))
		if fields == "-" {
			if fault.CodeOf(err) != fault.InvalidJSON {
				t.Errorf("%q: got %v, want invalid JSON", body, err)
			}
			continue
		}
		var names []string
		for _, p := range fault.ProblemsOf(err) {
			names = append(names, p.Field)
		}
		if got := strings.Join(names, " "); got != fields || len(names) == 0 {
			t.Errorf("%q: got %v with the fields %q, want %q", body, err, got, fields)
		}
	}
}

// Guarantee: an account has so many rotations and readings at once and no more, whatever others do; what finds no slot is a 429.
func TestSlotsAreBounded(t *testing.T) {
	begun, release := make(chan struct{}, 64), make(chan struct{})
	s := newService(&script{
		usage: func(context.Context) (*control.HolderUsage, error) {
			begun <- struct{}{}
			<-release
			return &control.HolderUsage{Key: &apikey.Key{}}, nil
		},
		rotate: func(context.Context, int) (*control.NewKey, error) {
			begun <- struct{}{}
			<-release
			return &control.NewKey{}, nil
		},
	})
	usage := &proxy.HolderRequest{Service: admit.Usage, AccountID: "a", KeyID: "key_1"}
	for r, most := range map[*proxy.HolderRequest]int{rotation("a", `{"overlap_days": 7}`): RotationsPerAccount, usage: ReadsPerAccount} {
		var all sync.WaitGroup
		for range most {
			all.Go(func() {
				if _, _, err := s.Serve(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
			<-begun
		}
		_, _, err := s.Serve(t.Context(), r)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.RateLimitExceeded || e.Limit.Scope != "self_service" || e.Limit.Limit != int64(most) || e.Limit.ResetAt <= time.Now().Unix() {
			t.Errorf("got %v, want a 429", err)
		}
		other := *r
		other.AccountID = "b"
		all.Go(func() {
			if _, _, err := s.Serve(t.Context(), &other); err != nil {
				t.Error(err)
			}
		})
		<-begun
		for range most + 1 {
			release <- struct{}{}
		}
		all.Wait()
	}
}

// Guarantee: what a failure of the store says, of nodes or disks, is not told to holders.
func TestFailuresAreNotToldToHolders(t *testing.T) {
	failure := fault.New(fault.Unavailable, "the node %q is old", "node-7")
	s := newService(&script{
		usage:  func(context.Context) (*control.HolderUsage, error) { return nil, failure },
		rotate: func(context.Context, int) (*control.NewKey, error) { return nil, errors.New("node-7") },
	})
	_, _, err := s.Serve(t.Context(), &proxy.HolderRequest{Service: admit.Usage, AccountID: "a"})
	if fault.CodeOf(err) != fault.Unavailable || strings.Contains(fault.MessageOf(err), "node-7") || !errors.Is(err, failure) {
		t.Errorf("got %v, want a 503 that names no node", err)
	}
	if _, _, err = s.Serve(t.Context(), rotation("a", `{"overlap_days": 7}`)); fault.CodeOf(err) != fault.Internal || strings.Contains(fault.MessageOf(err), "node-7") {
		t.Errorf("got %v, want a 500 that names no node", err)
	}
	none := New(Config{Control: s.cfg.Control, Now: time.Now, Account: func(string) *account.Account { return nil }})
	if _, _, err := none.Serve(t.Context(), rotation("a", "{}")); fault.CodeOf(err) != fault.Unauthorized {
		t.Errorf("got %v, want a 401 without the account", err)
	}
}
