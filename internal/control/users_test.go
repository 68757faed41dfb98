package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

const identityProvider = "https://login.example.com"

// withUsers returns a harness whose users sign in to the account acme, and a caller there.
func withUsers(t *testing.T) (*harness, *control.Actor) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	h.signIn = &control.SignInPolicy{Issuer: identityProvider, Account: "acme"}
	h.serve(h.db)
	return h, c
}

func (h *harness) signInUser(subject string, role user.Role) (*control.Session, error) {
	_, s, err := h.SignInUser(ctx(), &control.UserSignIn{
		Identity: user.Identity{Issuer: identityProvider, Subject: subject}, Roles: control.RoleClaim{Given: true, Role: role},
	})
	return s, err
}

// Guarantee: an account has at most 20,000 users, those that were deleted included, and one more is refused. Those that it
// has sign in as before.
func TestUsersOfAnAccountAreBounded(t *testing.T) {
	h, c := withUsers(t)
	h.must(h.db.Update(ctx(), func(tx control.Tx) error {
		for n := range user.MaxUsers {
			u := user.User{
				ID: id.New(id.User), AccountID: c.Account.ID, Issuer: identityProvider, Subject: fmt.Sprint("user", n), Role: user.Viewer,
				State: []user.State{user.Active, user.Deleted}[n%2], CreatedAt: h.clock.now(), Version: 1,
			}
			if err := tx.InsertUser(ctx(), &u); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := h.signInUser("another", user.Admin)
	if h.wantCode(err, fault.Forbidden, ""); err == nil || !strings.Contains(err.Error(), "20000 users") {
		t.Errorf("got %v", err)
	}
	_, err = h.signInUser("user0", user.Editor)
	h.must(err)
}

// Guarantee: an account has at most 1,000 invitations; one more is a conflict, until some are gone.
func TestInvitationsOfAnAccountAreBounded(t *testing.T) {
	h, c := withUsers(t)
	h.must(h.db.Update(ctx(), func(tx control.Tx) error {
		for n := range user.MaxInvitations {
			i := user.Invitation{
				ID: id.New(id.Invitation), AccountID: c.Account.ID, Digest: sha256.Sum256(fmt.Append(nil, n)), Email: "ada@example.com", Role: user.Viewer,
				CreatedAt: h.clock.now(), ExpiresAt: h.clock.now().Add(time.Hour),
			}
			if err := tx.InsertInvitation(ctx(), &i); err != nil {
				return err
			}
		}
		return nil
	}))
	in := control.InvitationInput{Email: "ada@example.com", Role: "viewer"}
	_, err := h.Invite(ctx(), c, in)
	h.wantCode(err, fault.Conflict, "")
	list := must[[]user.Invitation](h)(h.Invitations(ctx(), c, control.Page{Limit: 1}))
	must[*user.Invitation](h)(h.DeleteInvitation(ctx(), c, list[0].ID))
	must[*control.NewInvitation](h)(h.Invite(ctx(), c, in))
}

// Guarantee: a change that began before its user was suspended, deleted or demoted is not made afterwards.
func TestChangesOfFormerUsersAreRefused(t *testing.T) {
	h, c := withUsers(t)
	for n, change := range []struct {
		by   func(id string) error
		code fault.Code
	}{
		{func(id string) error {
			return second(h.UpdateUser(ctx(), c, id, control.UserPatch{State: value("suspended")}, nil))
		}, fault.Unauthorized},
		{func(id string) error { return second(h.DeleteUser(ctx(), c, id, nil)) }, fault.Unauthorized},
		{func(id string) error {
			return second(h.UpdateUser(ctx(), c, id, control.UserPatch{Role: value("viewer")}, nil))
		}, fault.Forbidden},
	} {
		s, err := h.signInUser(fmt.Sprint("user", n), user.Editor)
		h.must(err)
		as := &control.Actor{Kind: control.UserActor, Account: s.Account, User: s.User, Scope: s.User.Role.Scopes()}
		create := func() error {
			return second(h.CreateKey(ctx(), as, control.KeyInput{Name: "k", Scope: "read"}))
		}
		h.must(create())
		h.must(change.by(s.UserID))
		h.wantCode(create(), change.code, "")
	}
}

// callsOnUsers returns a valid call by c of every operation on users that has an actor.
func callsOnUsers(h *harness, c *control.Actor) map[string]func(ctx context.Context) error {
	p := control.Page{Limit: 1}
	return map[string]func(ctx context.Context) error{
		"Users": func(ctx context.Context) error { return second(h.Users(ctx, c, control.UserFilter{}, p)) },
		"User":  func(ctx context.Context) error { return second(h.User(ctx, c, "usr_x")) },
		"UpdateUser": func(ctx context.Context) error {
			return second(h.UpdateUser(ctx, c, "usr_x", control.UserPatch{Role: value("viewer")}, nil))
		},
		"DeleteUser":  func(ctx context.Context) error { return second(h.DeleteUser(ctx, c, "usr_x", nil)) },
		"Invitations": func(ctx context.Context) error { return second(h.Invitations(ctx, c, p)) },
		"Invite": func(ctx context.Context) error {
			return second(h.Invite(ctx, c, control.InvitationInput{Email: "ada@example.com", Role: "viewer"}))
		},
		"UserTokens":       func(ctx context.Context) error { return second(h.UserTokens(ctx, c, "usr_x", p)) },
		"RevokeUserToken":  func(ctx context.Context) error { return second(h.RevokeUserToken(ctx, c, "usr_x", "tok_x")) },
		"RevokeUserTokens": func(ctx context.Context) error { return second(h.RevokeUserTokens(ctx, c, "usr_x")) },
		"Device":           func(ctx context.Context) error { return second(h.Device(ctx, c, "BBBB-BBBB")) },
		"DecideDevice":     func(ctx context.Context) error { return second(h.DecideDevice(ctx, c, "BBBB-BBBB", false)) },
		"DeleteInvitation": func(ctx context.Context) error { return second(h.DeleteInvitation(ctx, c, "inv_x")) },
	}
}

// Guarantee: at most 1,000 sign-ins of devices wait for a user, whatever their addresses; one more is refused until some have
// expired.
func TestDevicesOfAllAreBounded(t *testing.T) {
	h, c := withUsers(t)
	h.must(h.db.Update(ctx(), func(tx control.Tx) error {
		for n := range user.MaxAccountDevices {
			l := user.Login{
				Digest: sha256.Sum256(fmt.Append(nil, n)), AccountID: c.Account.ID, UserCode: fmt.Sprint(n), Network: fmt.Sprint(n), State: user.LoginPending,
				CreatedAt: h.clock.now(), ExpiresAt: h.clock.now().Add(user.DeviceLifetime),
			}
			if err := tx.InsertLogin(ctx(), &l, 0); err != nil {
				return err
			}
		}
		return nil
	}))
	in := &control.DeviceRequest{FromClient: control.FromClient{ClientIP: "192.0.2.1"}, Network: "192.0.2.1/32"}
	_, err := h.BeginDevice(ctx(), in)
	h.wantCode(err, fault.RateLimitExceeded, "")
	h.clock.advance(user.DeviceLifetime)
	must[*control.NewDevice](h)(h.BeginDevice(ctx(), in))
}

// Guarantee: a change that began before its token was revoked is not made afterwards.
func TestChangesOfRevokedTokensAreRefused(t *testing.T) {
	h, c := withUsers(t)
	sum := sha256.Sum256([]byte("verifier"))
	code, u, err := h.SignInForCode(ctx(), &control.UserSignIn{
		Identity: user.Identity{Issuer: identityProvider, Subject: "ada"}, Roles: control.RoleClaim{Given: true, Role: user.Editor},
	}, &control.CodeRequest{RedirectURI: "http://127.0.0.1:1/callback", Challenge: base64.RawURLEncoding.EncodeToString(sum[:])})
	h.must(err)
	made := must[*control.NewUserToken](h)(h.RedeemCode(ctx(), &control.Redemption{Code: code, Verifier: "verifier", RedirectURI: "http://127.0.0.1:1/callback"}))
	as := &control.Actor{Kind: control.UserActor, Account: c.Account, User: u, TokenID: made.ID, Scope: u.Role.Scopes()}
	create := func() error {
		return second(h.CreateKey(ctx(), as, control.KeyInput{Name: "k", Scope: "read"}))
	}
	h.must(create())
	must[*user.Token](h)(h.RevokeUserToken(ctx(), c, u.ID, made.ID))
	h.wantCode(create(), fault.Unauthorized, "")
}
