package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

const provider = "https://login.example.com"

func newUser(a *account.Account, subject string) *user.User {
	return &user.User{
		ID: id.New(id.User), AccountID: a.ID, Issuer: provider, Subject: subject, Email: subject + "@example.com", Name: strings.ToUpper(subject),
		Role: user.Viewer, State: user.Active, CreatedAt: epoch(), Version: 1,
	}
}

func (h *harness) insertUser(a *account.Account, subject string, change func(*user.User)) *user.User {
	h.Helper()
	u := newUser(a, subject)
	if change != nil {
		change(u)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertUser(ctx, u) })
	return u
}

func (h *harness) insertInvitation(a *account.Account, secret string, expires time.Time) *user.Invitation {
	h.Helper()
	i := &user.Invitation{
		ID: id.New(id.Invitation), AccountID: a.ID, Digest: sha256.Sum256([]byte(secret)), Email: "ada@example.com", Role: user.Editor,
		CreatedAt: epoch(), ExpiresAt: expires,
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertInvitation(ctx, i) })
	return i
}

// newUserSession returns the i-th session of a user.
func newUserSession(u *user.User, i int) *control.Session {
	at := epoch().Add(time.Duration(i) * time.Second)
	return &control.Session{
		Digest: sha256.Sum256(fmt.Append(nil, u.ID, i)), AccountID: u.AccountID, UserID: u.ID, CreatedAt: at, ExpiresAt: at.Add(time.Hour), UsedAt: at,
	}
}

func (h *harness) insertUserSession(s *control.Session, ofUser, ofAccount int) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertUserSession(ctx, s, ofUser, ofAccount) })
}

func (h *harness) wantUserSession(s *control.Session, exists bool) {
	h.Helper()
	_, err := try(h, func(ctx context.Context, tx control.ReadTx) (*control.Session, error) {
		return tx.UserSession(ctx, s.Digest)
	})
	if code := fault.CodeOf(err); exists != (err == nil) || !exists && code != fault.NotFound {
		h.Errorf("the session of %s created at %s: got %v, want it to exist: %t", s.UserID, s.CreatedAt, err, exists)
	}
}

// Guarantee: a user is returned as it was inserted and as it was updated, by its identifier and by its identity. An update
// does not change who it is.
func testUserRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		draw := func(what string) *user.User {
			u := newUser(a, what)
			u.Subject += u.ID
			u.Issuer, u.Email, u.Name = text().Draw(t, "issuer"), text().Draw(t, "email"), text().Draw(t, "name")
			u.Role, u.State = rapid.SampledFrom([]user.Role{user.Viewer, user.Editor, user.Admin}).Draw(t, "role"), rapid.SampledFrom([]user.State{user.Active, user.Suspended}).Draw(t, "state")
			u.Invited, u.LastSeenAt = rapid.Bool().Draw(t, "invited"), rapid.OneOf(rapid.Just(time.Time{}), moment()).Draw(t, "last_seen_at")
			u.CreatedAt, u.Version = moment().Draw(t, "created_at"), rapid.Int64Min(1).Draw(t, "version")
			return u
		}
		u, changed := draw("user"), draw("changed")
		read := func() []*user.User {
			return []*user.User{
				get(h, func(ctx context.Context, tx control.ReadTx) (*user.User, error) { return tx.User(ctx, a.ID, u.ID) }),
				get(h, func(ctx context.Context, tx control.ReadTx) (*user.User, error) {
					return tx.UserByIdentity(ctx, a.ID, u.Issuer, u.Subject)
				}),
			}
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertUser(ctx, u) })
		same(t, "inserted", read(), []*user.User{u, u})
		changed.ID = u.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateUser(ctx, changed) })
		changed.Issuer, changed.Subject, changed.CreatedAt = u.Issuer, u.Subject, u.CreatedAt
		same(t, "updated", read(), []*user.User{changed, changed})
	})
}

// Guarantee: an identity is one user of an account. A deleted user is found by its identity alone, and no account finds or
// changes the users and invitations of another one.
func testUserRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	u := h.insertUser(a, "ada", nil)
	h.insertUser(b, "ada", nil)
	h.insertUser(a, "ada", func(u *user.User) { u.Issuer = "https://other.example.com" })
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error { return tx.InsertUser(ctx, newUser(a, "ada")) })
	i := h.insertInvitation(a, "x", epoch().Add(time.Hour))
	missing(h, "User", func(ctx context.Context, tx control.ReadTx) (*user.User, error) { return tx.User(ctx, b.ID, u.ID) })
	missing(h, "Invitation", func(ctx context.Context, tx control.ReadTx) (*user.Invitation, error) {
		return tx.Invitation(ctx, b.ID, i.ID)
	})
	missing(h, "InvitationByDigest", func(ctx context.Context, tx control.ReadTx) (*user.Invitation, error) {
		return tx.InvitationByDigest(ctx, b.ID, i.Digest)
	})
	other := *u
	other.AccountID = b.ID
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateUser(ctx, &other) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteInvitation(ctx, b.ID, i.ID) })
	u.State = user.Deleted
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateUser(ctx, u) })
	missing(h, "User", func(ctx context.Context, tx control.ReadTx) (*user.User, error) { return tx.User(ctx, a.ID, u.ID) })
	same(h, "by identity", get(h, func(ctx context.Context, tx control.ReadTx) (*user.User, error) {
		return tx.UserByIdentity(ctx, a.ID, provider, "ada")
	}), u)
	same(h, "counts", get(h, func(ctx context.Context, tx control.ReadTx) (control.UserCounts, error) {
		return tx.UserCounts(ctx, a.ID)
	}),
		control.UserCounts{Users: 2, Invitations: 1})
}

// Guarantee: a list of users has exactly those that the filter selects and none that are deleted, newest first and page by
// page. Another admin counts if it is active and of the same provider.
func testUserList(h *harness) {
	a := h.insertAccount("a")
	var users []*user.User
	for n, role := range []user.Role{user.Viewer, user.Admin, user.Editor, user.Admin, user.Admin} {
		users = append(users, h.insertUser(a, fmt.Sprint("user", n), func(u *user.User) {
			u.Role, u.State = role, []user.State{user.Active, user.Active, user.Suspended, user.Suspended, user.Deleted}[n]
			u.Email = fmt.Sprintf("U%d@Example.com", n)
		}))
	}
	h.insertUser(h.insertAccount("b"), "user0", nil)
	slices.Reverse(users)
	for _, f := range []control.UserFilter{
		{}, {State: user.Suspended}, {Role: user.Admin}, {Email: "u1@eXample.com"}, {Email: "u1"}, {Query: "USER2"}, {Query: "2@example"},
		{State: user.Suspended, Role: user.Admin, Query: "3"},
	} {
		var want []user.User
		for _, u := range users {
			if u.State != user.Deleted && (f.State == "" || u.State == f.State) && (f.Role == "" || u.Role == f.Role) && (f.Email == "" || strings.EqualFold(f.Email, u.Email)) &&
				(strings.Contains(strings.ToLower(u.Email), strings.ToLower(f.Query)) || strings.Contains(strings.ToLower(u.Name), strings.ToLower(f.Query))) {
				want = append(want, *u)
			}
		}
		rapid.Check(h, func(t *rapid.T) {
			same(t, fmt.Sprintf("%+v", f), pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]user.User, error) {
				return tx.Users(ctx, a.ID, f, p)
			}, func(u *user.User) string { return u.ID }), want)
		})
	}
	other := func(issuer, without string) bool {
		return get(h, func(ctx context.Context, tx control.ReadTx) (bool, error) {
			return tx.HasOtherAdmin(ctx, a.ID, issuer, without)
		})
	}
	same(h, "other admins", []bool{other(provider, "usr_x"), other(provider, users[3].ID), other("https://other.example.com", "usr_x")}, []bool{true, false, false})
}

// Guarantee: an invitation is stored with all its fields, listed newest first, found by its digest, and deleted once.
func testInvitations(h *harness) {
	a := h.insertAccount("a")
	one, two := h.insertInvitation(a, "one", epoch().Add(time.Hour)), h.insertInvitation(a, "two", epoch().Add(2*time.Hour))
	list := func() []user.Invitation {
		return get(h, func(ctx context.Context, tx control.ReadTx) ([]user.Invitation, error) {
			return tx.Invitations(ctx, a.ID, control.Page{Limit: 10})
		})
	}
	same(h, "invitations", list(), []user.Invitation{*two, *one})
	same(h, "by digest", get(h, func(ctx context.Context, tx control.ReadTx) (*user.Invitation, error) {
		return tx.InvitationByDigest(ctx, a.ID, sha256.Sum256([]byte("one")))
	}), one)
	remove := func(ctx context.Context, tx control.Tx) error { return tx.DeleteInvitation(ctx, a.ID, one.ID) }
	h.update(remove)
	h.rejected(fault.NotFound, remove)
	same(h, "invitations", list(), []user.Invitation{*two})
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.TrimUsers(ctx, two.ExpiresAt, 1)
		return err
	})
	same(h, "expired invitations", len(list()), 0)
}

// Guarantee: a session of a user is stored with all its fields and read with the user. A use is noted at the session and
// at the user. Inserting a session removes the oldest of the user and of the account beyond their maximum numbers, and no
// other; all of a user can be removed at once, and expired ones are.
func testUserSessions(h *harness) {
	a := h.insertAccount("a")
	ada, bob := h.insertUser(a, "ada", nil), h.insertUser(a, "bob", nil)
	s := newUserSession(ada, 0)
	s.AuthTime = epoch().Add(-time.Minute)
	h.insertUserSession(s, 2, 3)
	read := func() control.Session {
		got := get(h, func(ctx context.Context, tx control.ReadTx) (*control.Session, error) {
			return tx.UserSession(ctx, s.Digest)
		})
		return *got
	}
	want := *s
	want.User = ada
	same(h, "the session", read(), want)
	used := epoch().Add(time.Minute)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UseSession(ctx, s, used) })
	want.UsedAt, ada.LastSeenAt = used, used
	same(h, "the session that was used", read(), want)

	sessions := []*control.Session{s}
	for i, u := range []*user.User{ada, ada, bob, bob} {
		next := newUserSession(u, i+1)
		h.insertUserSession(next, 2, 3)
		sessions = append(sessions, next)
	}
	for i, exists := range []bool{false, false, true, true, true} {
		h.wantUserSession(sessions[i], exists)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserSessions(ctx, ada.ID) })
	h.wantUserSession(sessions[2], false)
	var more bool
	h.update(func(ctx context.Context, tx control.Tx) (err error) {
		more, err = tx.TrimUsers(ctx, sessions[3].ExpiresAt, 2)
		return err
	})
	h.wantUserSession(sessions[3], false)
	h.wantUserSession(sessions[4], true)
	for range 2 {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserSession(ctx, sessions[4].Digest) })
		h.wantUserSession(sessions[4], false)
	}
	if more {
		h.Error("trimming says that there are others")
	}
}

// Guarantee: responses that are stored for the calls of a user count for its account, and not any more when they are gone.
func testUserResponses(h *harness) {
	a := h.insertAccount("a")
	u := h.insertUser(a, "ada", nil)
	h.insertGateway(a)
	want := func(responses, bytes int64) {
		h.Helper()
		n := get(h, func(ctx context.Context, tx control.ReadTx) (control.AccountCounts, error) {
			return tx.AccountCounts(ctx, a.ID)
		})
		same(h, "responses and their bytes", []int64{n.Responses, n.ResponseBytes}, []int64{responses, bytes})
	}
	put := func(body string) {
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.PutStoredResponse(ctx, &control.StoredResponse{KeyID: u.ID, Key: "x", Body: []byte(body), CreatedAt: epoch()})
		})
	}
	put("1234")
	want(1, 4)
	put("12345678")
	want(1, 8)
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.Trim(ctx, epoch().Add(time.Hour), time.Time{}, time.Time{}, 0, 100)
		return err
	})
	want(0, 0)
}
