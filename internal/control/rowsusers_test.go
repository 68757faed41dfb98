package control_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/user"
)

// users carries out the operations on users of an account that has many of them, as many sessions as it may, and an issuer with
// many denials, all of which it leaves; what repositories and issuers write
// by themselves, and grants to a key.
func (h *rowHarness) users() {
	h.manyUsers()
	h.signIn = &control.SignInPolicy{Issuer: identityProvider, Account: h.caller.Account.Name}
	h.serve(h.engine)
	var i *control.NewInvitation
	h.do("invite", func() (err error) {
		i, err = h.Invite(ctx(), h.caller, control.InvitationInput{Email: "ada@example.com", Role: "viewer"})
		return err
	})
	h.do("delete invitation", func() error { return second(h.DeleteInvitation(ctx(), h.caller, i.ID)) })
	var s *control.Session
	for range control.SessionsPerKey + 1 {
		h.do("sign in user", func() (err error) {
			s, err = h.signInUser("ada", user.Editor)
			return err
		})
	}
	for _, p := range []control.UserPatch{{Role: value("viewer")}, {State: value("suspended")}, {State: value("active")}} {
		h.do("change user", func() error { return second(h.UpdateUser(ctx(), h.caller, s.UserID, p, nil)) })
	}
	for range control.SessionsPerKey {
		h.do("sign in user", func() error { return second(h.signInUser("ada", user.Editor)) })
	}
	h.do("delete user", func() error { return second(h.DeleteUser(ctx(), h.caller, s.UserID, nil)) })
	h.denials()
	h.repository()
	h.keyGrants()
}

// manyUsers stores more users than one transaction may write rows, and the sessions of some of them.
func (h *rowHarness) manyUsers() {
	for n := range (mostRows + 500) / 100 {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			for m := range 100 {
				u := user.User{
					ID: id.New(id.User), AccountID: h.caller.Account.ID, Issuer: identityProvider, Subject: fmt.Sprint(n, "-", m),
					Role: user.Viewer, State: user.Active, CreatedAt: h.clock.now(), Version: 1,
				}
				if err := tx.InsertUser(ctx(), &u); err != nil {
					return err
				}
				if n*100 >= control.SessionsPerAccount {
					continue
				}
				last := h.clock.now().Add(365 * 24 * time.Hour) // they end after the account
				s := control.Session{Digest: sha256.Sum256([]byte(u.ID)), AccountID: u.AccountID, UserID: u.ID, CreatedAt: h.clock.now(), ExpiresAt: last, UsedAt: last}
				if err := tx.InsertUserSession(ctx(), &s, control.SessionsPerKey, control.SessionsPerAccount); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// denials stores the keys of an issuer, which are as many as it may have, and more denials than one transaction may write rows.
func (h *rowHarness) denials() {
	i := must[*issuer.Issuer](h.harness)(h.CreateIssuer(ctx(), h.caller, "fetched", discovered()))
	source, _ := i.FetchedFrom()
	fetch := control.KeyFetch{AccountID: i.AccountID, IssuerID: i.ID, Source: source, Next: time.Minute}
	for first := range 2 { // all of its keys are new the second time
		var kids []string
		for n := range jwk.MaxKeys {
			kids = append(kids, fmt.Sprint(first, "-", n))
		}
		fetch.Keys = must[*jwk.Set](h.harness)(jwk.ParseSet([]byte(jwksOf(kids...))))
		h.do("record a fetch of keys", func() error { return second(h.RecordFetch(ctx(), fetch)) })
	}
	fetch.Keys, fetch.Problem = nil, strings.Repeat("p", 200)
	h.do("record a failed fetch of keys", func() error { return second(h.RecordFetch(ctx(), fetch)) })
	for n := range (mostRows + 500) / 100 {
		h.must(h.engine.Update(ctx(), func(tx control.Tx) error {
			for m := range 100 {
				d := issuer.Denial{ID: id.New(id.Denial), AccountID: i.AccountID, IssuerID: i.ID, Subject: fmt.Sprint(n, "-", m), Until: h.clock.now().Add(365 * 24 * time.Hour), CreatedAt: h.clock.now()}
				if err := tx.InsertDenial(ctx(), &d); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// repository pushes many routes from a repository, and records results of its syncs.
func (h *rowHarness) repository() {
	g := must[*gateway.Gateway](h.harness)(h.CreateGateway(ctx(), h.caller, newGateway("https://h"), ""))
	r := must[*control.Repository](h.harness)(h.PutRepository(ctx(), h.caller, g.ID, input(nil), nil))
	for n, paths := range [][]string{manyPaths(3000), {"/a"}} {
		push := control.RepositoryPush{AccountID: h.caller.Account.ID, GatewayID: g.ID, Kind: gateway.SpecDocument, Content: spec(paths...), Commit: []string{commitOne, commitTwo}[n], Author: ada}
		h.do("push of a repository", func() error { return second(h.PushRepository(ctx(), push)) })
	}
	h.do("record a failed sync", func() error {
		return h.RecordSync(ctx(), g.ID, r.Version, func(r *gateway.ConnectedRepository) *event.SyncFailed {
			r.LastError, r.FailedCommit = strings.Repeat("p", 200), commitTwo
			return &event.SyncFailed{GatewayID: g.ID, Message: r.LastError}
		})
	})
}

// keyGrants grants units of a quota of a key.
func (h *rowHarness) keyGrants() {
	p := must[*control.ChangedPlan](h.harness)(h.CreatePlan(ctx(), h.caller, control.PlanInput{Name: "by-key", Limits: []plan.LimitInput{{Name: "l", Quota: "1000/day", Per: "key"}}}))
	k := must[*control.NewKey](h.harness)(h.CreateKey(ctx(), h.caller, control.KeyInput{Name: "k", Scope: "read", Plan: control.ChoosePlan(p.ID, "")}))
	for range 3 { // the first is of a new quota
		h.do("grant units to a key", func() error {
			return second(h.GrantToKey(ctx(), h.caller, k.ID, control.GrantInput{Limit: "l", Units: 1, Reason: strings.Repeat("r", 200)}))
		})
	}
}
