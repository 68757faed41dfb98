package admit

import (
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/token"
)

// deny stores a denial for an hour, and returns it.
func (s *signer) deny(d issuer.Denial) issuer.Denial {
	s.h.t.Helper()
	d.ID, d.AccountID, d.IssuerID, d.Until = id.New(id.Denial), s.record.AccountID, s.record.ID, s.h.clock.Wall().Add(time.Hour)
	s.h.source.PutDenial(d)
	s.h.catchUp()
	return d
}

// Guarantee: identity.md, section 2. A denial is in force when its change was read: for tokens that are remembered, for new
// ones, for requests that were admitted and have not gone upstream, and for streams. It refuses no other token, whatever is
// loaded or changed meanwhile, and nothing once it is lifted.
func TestDeniedTokens(t *testing.T) {
	h := newHarness(t)
	s, spare := h.issuer("login", nil), h.issuer("spare", nil)
	h.tokenGateway(nil, "login", "spare")
	iat := h.clock.Wall().Add(-time.Minute)
	of := func(s *signer, subject, jti string) string {
		return s.token(map[string]any{"sub": subject, "jti": jti, "iat": iat.Unix()})
	}
	others := map[string]string{"another subject": of(s, "bob", "t2"), "the subject of another issuer": of(spare, "ada", "t1")}
	for name, denial := range map[string]issuer.Denial{
		"subject": {Subject: "ada"}, "jti": {JTI: "t1"}, "issued_before": {IssuedBefore: iat.Add(time.Second)},
	} {
		text := of(s, "ada", "t1")
		v := h.withToken("/token", text)
		if v.Action != Forward {
			t.Fatalf("%s: before the denial: got %v", name, v.Fault())
		}
		stream, waiting := v.Admission("GET"), v.Admission("GET")
		for what, other := range others {
			if v := h.withToken("/token", other); v.Action != Forward {
				t.Fatalf("%s: %s, before the denial: got %v", name, what, v.Fault())
			}
		}
		d := s.deny(denial)
		refused := func(when string) {
			t.Helper()
			for what, text := range map[string]string{"remembered": text, "new": of(s, "ada", "t1")} {
				v := h.withToken("/token", text)
				if v.Code != fault.Unauthorized || v.Auth != fault.TokenInvalid || v.Refusal == nil || v.Refusal.Reason != token.Denied {
					t.Errorf("%s, %s: a %s token: got action %v and %v", name, when, what, v.Action, v.Fault())
				}
				h.clock.Advance(time.Second) // so that the failures do not add up
			}
			for what, other := range others {
				if v := h.withToken("/token", other); v.Action != Forward && (name != "issued_before" || what != "another subject") {
					t.Errorf("%s, %s: %s: got %v", name, when, what, v.Fault())
				}
			}
		}
		if r := h.admit.Review(); r.Cut(&stream) != accesslog.KeyInvalid || r.Result(&waiting) != accesslog.KeyInvalid {
			t.Errorf("%s: a stream and an admitted request go on", name)
		}
		refused("at once")
		if err := h.follower.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused("after everything was loaded again")
		changed := s.record
		changed.Leeway, changed.Denials = fmt.Sprint(30+len(name), "s"), 1
		h.source.PutIssuer(changed)
		h.catchUp()
		refused("after a change of the issuer")
		h.source.DeleteDenial(s.record.ID, d.ID)
		h.catchUp()
		if v := h.withToken("/token", text); v.Action != Forward {
			t.Errorf("%s: after it was lifted: got %v", name, v.Fault())
		}
	}
}

// Guarantee: a token that is denied until it expires is not valid in the leeway after that either.
func TestDenialOutlastsToken(t *testing.T) {
	h := newHarness(t)
	s := h.issuer("login", nil)
	h.tokenGateway(nil, "login")
	text := s.token(nil) // an hour to live, as the denial
	s.deny(issuer.Denial{Subject: "ada"})
	for _, after := range []time.Duration{time.Hour - time.Second, time.Second, 59 * time.Second} {
		h.clock.Advance(after)
		if v := h.withToken("/token", text); v.Auth != fault.TokenInvalid {
			t.Errorf("%s later: got action %v and %v, want it denied", after, v.Action, v.Fault())
		}
	}
	if h.clock.Advance(time.Second); h.withToken("/token", text).Auth != fault.TokenExpired {
		t.Error("a token beyond its end and the leeway has not expired")
	}
}
