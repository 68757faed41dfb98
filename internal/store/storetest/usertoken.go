package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

// newUserToken returns the i-th token of a user.
func newUserToken(u *user.User, i int) *user.Token {
	at := epoch().Add(time.Duration(i) * time.Second)
	return &user.Token{
		ID: id.NewAt(id.UserToken, at), AccountID: u.AccountID, UserID: u.ID, Digest: apikey.Digest(sha256.Sum256(fmt.Append(nil, u.ID, "token", i))), Prefix: "kgs_abcdef",
		Machine: "laptop", Address: "192.0.2.1", CreatedAt: at, ExpiresAt: at.Add(time.Hour),
	}
}

func (h *harness) insertUserToken(t *user.Token, ofUser, ofAccount int) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertUserToken(ctx, t, ofUser, ofAccount) })
}

// newDevice returns the sign-in of a device, which waits for a user.
func newDevice(a *account.Account, userCode string) *user.Login {
	return &user.Login{
		Digest: sha256.Sum256([]byte(a.ID + userCode)), AccountID: a.ID, UserCode: userCode, Network: "192.0.2.1/32", State: user.LoginPending, CreatedAt: epoch(), ExpiresAt: epoch().Add(time.Hour),
	}
}

func (h *harness) insertLogin(l *user.Login) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertLogin(ctx, l, 2) })
}

func (h *harness) tokenIDs(u *user.User) []string {
	h.Helper()
	list := get(h, func(ctx context.Context, tx control.ReadTx) ([]user.Token, error) {
		return tx.UserTokens(ctx, u.AccountID, u.ID, control.Page{Limit: 100})
	})
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids
}

// Guarantee: a token of a user is stored with all its fields and read by its digest with its user, and by its identifier in its
// account alone. A use is noted at the token and at the user. Inserting a token removes the oldest of the user and of the
// account beyond their maximum numbers, and no other; one of a user that is not active is not inserted. Tokens end one by
// one, all of a user at once, with its sessions, and after they have expired.
func testUserTokens(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	ada, bob := h.insertUser(a, "ada", nil), h.insertUser(a, "bob", nil)
	one := newUserToken(ada, 0)
	one.AuthTime = epoch().Add(-time.Minute)
	h.insertUserToken(one, 2, 3)
	ada.LastSeenAt = one.CreatedAt
	read := func() *control.TokenOfUser {
		return get(h, func(ctx context.Context, tx control.ReadTx) (*control.TokenOfUser, error) {
			return tx.UserOfToken(ctx, one.Digest)
		})
	}
	same(h, "the token", read(), &control.TokenOfUser{Token: *one, User: *ada})
	used := epoch().Add(time.Minute)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UseUserToken(ctx, one, used) })
	one.UsedAt, ada.LastSeenAt = used, used
	same(h, "the token that was used", read(), &control.TokenOfUser{Token: *one, User: *ada})
	same(h, "by its identifier", get(h, func(ctx context.Context, tx control.ReadTx) (*user.Token, error) {
		return tx.UserToken(ctx, a.ID, ada.ID, one.ID)
	}), one)
	for _, of := range [][2]string{{b.ID, ada.ID}, {a.ID, bob.ID}} {
		missing(h, "UserToken", func(ctx context.Context, tx control.ReadTx) (*user.Token, error) {
			return tx.UserToken(ctx, of[0], of[1], one.ID)
		})
	}
	other := *one
	other.AccountID = b.ID
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserToken(ctx, &other) })

	tokens := []*user.Token{one}
	for i, u := range []*user.User{ada, ada, bob, bob} {
		next := newUserToken(u, i+1)
		h.insertUserToken(next, 2, 3)
		tokens = append(tokens, next)
	}
	same(h, "tokens of ada", h.tokenIDs(ada), []string{tokens[2].ID})
	same(h, "tokens of bob", h.tokenIDs(bob), []string{tokens[4].ID, tokens[3].ID})
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserToken(ctx, tokens[3]) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserToken(ctx, tokens[3]) })
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserSessions(ctx, ada.ID) })
	same(h, "tokens of ada", h.tokenIDs(ada), []string{})
	trim := func(at time.Time) {
		h.update(func(ctx context.Context, tx control.Tx) error {
			_, err := tx.TrimUsers(ctx, at, 10)
			return err
		})
	}
	trim(tokens[4].ExpiresAt.Add(control.TokensKept - time.Second))
	same(h, "tokens of bob", h.tokenIDs(bob), []string{tokens[4].ID})
	trim(tokens[4].ExpiresAt.Add(control.TokensKept))
	same(h, "tokens of bob", h.tokenIDs(bob), []string{})

	bob.State = user.Suspended
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateUser(ctx, bob) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.InsertUserToken(ctx, newUserToken(bob, 9), 2, 3)
	})
}

// Guarantee: a sign-in of a command line is returned as it was inserted, by its digest and by its user code.
func testLoginRoundTrip(h *harness) {
	a := h.insertAccount("a")
	u := h.insertUser(a, "ada", nil)
	n := 0
	rapid.Check(h, func(t *rapid.T) {
		n++
		l := &user.Login{
			Digest: sha256.Sum256(fmt.Append(nil, a.ID, n)), AccountID: a.ID, UserCode: rapid.SampledFrom([]string{"", fmt.Sprint("CODE", n)}).Draw(t, "user_code"), Challenge: text().Draw(t, "challenge"),
			RedirectURI: text().Draw(t, "redirect_uri"), Network: text().Draw(t, "network"), Address: text().Draw(t, "address"), Machine: text().Draw(t, "machine"),
			State:  rapid.SampledFrom([]user.LoginState{user.LoginPending, user.LoginApproved, user.LoginDenied}).Draw(t, "state"),
			UserID: rapid.SampledFrom([]string{"", u.ID}).Draw(t, "user_id"), AuthTime: rapid.OneOf(rapid.Just(time.Time{}), moment()).Draw(t, "auth_time"),
			Interval: time.Duration(rapid.Int64Range(0, 60).Draw(t, "interval")) * time.Second, PolledAt: rapid.OneOf(rapid.Just(time.Time{}), moment()).Draw(t, "polled_at"),
			CreatedAt: moment().Draw(t, "created_at"), ExpiresAt: moment().Draw(t, "expires_at"),
		}
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertLogin(ctx, l, 1_000_000) })
		same(t, "by its digest", get(h, func(ctx context.Context, tx control.ReadTx) (*user.Login, error) { return tx.Login(ctx, l.Digest) }), l)
		if l.UserCode != "" {
			same(t, "by its user code", get(h, func(ctx context.Context, tx control.ReadTx) (*user.Login, error) {
				return tx.LoginByUserCode(ctx, a.ID, l.UserCode)
			}), l)
		}
	})
}

// Guarantee: a sign-in of a command line is decided about once, by an active user, and redeemed once, if it was approved. Those
// that wait are counted until they expire: of a network, and of the account. Those of a user end with its tokens, and the oldest
// of its codes beyond their maximum number when another one is inserted. Expired ones are removed an hour later.
func testLogins(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	u := h.insertUser(a, "ada", nil)
	insert := func(n int, change func(*user.Login)) *user.Login {
		l := newDevice(a, fmt.Sprint("CODE", n))
		l.CreatedAt = epoch().Add(time.Duration(n) * time.Second)
		if change != nil {
			change(l)
		}
		h.insertLogin(l)
		return l
	}
	counts := func(network string, at time.Time) []int64 {
		h.Helper()
		return get(h, func(ctx context.Context, tx control.ReadTx) ([]int64, error) {
			n, all, err := tx.PendingDevices(ctx, a.ID, network, at)
			return []int64{n, all}, err
		})
	}
	l, other := insert(1, nil), insert(2, func(l *user.Login) { l.Network = "192.0.2.2/32" })
	same(h, "waiting", counts(l.Network, epoch()), []int64{1, 2})
	same(h, "waiting after they have expired", counts(l.Network, l.ExpiresAt), []int64{0, 0})
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error {
		again := *l
		again.Digest = sha256.Sum256([]byte("again"))
		return tx.InsertLogin(ctx, &again, 2)
	})
	missing(h, "LoginByUserCode", func(ctx context.Context, tx control.ReadTx) (*user.Login, error) {
		return tx.LoginByUserCode(ctx, b.ID, l.UserCode)
	})
	redeem := func(of *user.Login) func(ctx context.Context, tx control.Tx) error {
		return func(ctx context.Context, tx control.Tx) error { return tx.RedeemLogin(ctx, of.Digest) }
	}
	decide := func(ctx context.Context, tx control.Tx) error { return tx.DecideLogin(ctx, l, epoch()) }
	h.rejected(fault.NotFound, redeem(l))
	l.Interval, l.PolledAt = 10*time.Second, epoch()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.PollLogin(ctx, l) })
	l.State, l.UserID, l.AuthTime = user.LoginApproved, u.ID, epoch()
	h.update(decide)
	h.rejected(fault.NotFound, decide)
	same(h, "the decision", get(h, func(ctx context.Context, tx control.ReadTx) (*user.Login, error) { return tx.Login(ctx, l.Digest) }), l)
	same(h, "waiting", counts(l.Network, epoch()), []int64{0, 1})
	h.update(redeem(l))
	h.rejected(fault.NotFound, redeem(l))

	var codes []*user.Login
	for n := range 3 {
		codes = append(codes, insert(10+n, func(l *user.Login) { l.UserCode, l.UserID, l.State = "", u.ID, user.LoginApproved }))
	}
	h.rejected(fault.NotFound, redeem(codes[0]))
	h.update(redeem(codes[1]))
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteUserTokens(ctx, u.ID) })
	h.rejected(fault.NotFound, redeem(codes[2]))
	exists := func(of *user.Login) bool {
		_, err := try(h, func(ctx context.Context, tx control.ReadTx) (*user.Login, error) { return tx.Login(ctx, of.Digest) })
		return err == nil
	}
	for _, step := range []struct {
		at   time.Time
		want bool
	}{{other.ExpiresAt.Add(control.LoginsKept - time.Second), true}, {other.ExpiresAt.Add(control.LoginsKept), false}} {
		h.update(func(ctx context.Context, tx control.Tx) error {
			_, err := tx.TrimUsers(ctx, step.at, 10)
			return err
		})
		if exists(other) != step.want {
			h.Errorf("at %s: the sign-in exists: %t, want %t", step.at, !step.want, step.want)
		}
	}
	suspended := insert(30, nil)
	u.State = user.Suspended
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateUser(ctx, u) })
	suspended.State, suspended.UserID = user.LoginApproved, u.ID
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DecideLogin(ctx, suspended, epoch()) })
}
