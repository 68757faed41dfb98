package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

// How long a token and a sign-in of a command line are kept after they have expired, so that who uses them learns that.
const (
	TokensKept = time.Hour
	LoginsKept = time.Hour
)

// TokenOfUser is a token with its user, as it is at present.
type TokenOfUser struct {
	user.Token
	User    user.User
	Account *account.Account // only in results
}

// NewUserToken is a token with its string, which is returned only once.
type NewUserToken struct {
	TokenOfUser
	Secret string
}

// mayBe reports whether somebody may act as a user: it is active, and users of its provider sign in to its account.
func (p *SignInPolicy) mayBe(u *user.User, of *account.Account) bool {
	return u.State == user.Active && u.Role.Valid() && u.Issuer == p.Issuer && of.Name == p.Account && of.State == account.Active
}

// UserByToken is TokenInForce for the string of a token, of which it notes the use.
func (s *Service) UserByToken(ctx context.Context, secret string) (*TokenOfUser, error) {
	found, err := s.TokenInForce(ctx, apikey.DigestOf(secret))
	if err != nil {
		return nil, err
	}
	if now := s.now(); now.Before(found.ExpiresAt) && now.Sub(found.UsedAt) >= userAgainAfter {
		s.note(ctx, found.UserID, "the use of a token", func(tx Tx) error { return tx.UseUserToken(ctx, &found.Token, now) })
	}
	return found, nil
}

// TokenInForce returns the token with the given digest, its account and its user as it is at present. If there is none, or its
// user may not sign in any more, the error is fault.NotFound. The caller must check whether it has expired.
func (s *Service) TokenInForce(ctx context.Context, digest apikey.Digest) (*TokenOfUser, error) {
	policy := s.cfg.SignIn
	if policy == nil {
		return nil, fault.Missing("token")
	}
	found, err := view(ctx, s, func(tx ReadTx) (*TokenOfUser, error) {
		t, err := tx.UserOfToken(ctx, digest)
		if err != nil {
			return nil, err
		}
		t.Account, err = tx.Account(ctx, t.AccountID)
		return t, err
	})
	switch {
	case err != nil:
		return nil, err
	case !policy.mayBe(&found.User, found.Account):
		return nil, fault.Missing("token")
	}
	return found, nil
}

// note writes what need not be written: if the store takes no changes now, only the log says so.
func (s *Service) note(ctx context.Context, userID, what string, write func(tx Tx) error) {
	if err := s.cfg.Store.Update(ctx, write); err != nil {
		s.cfg.Log.WarnContext(ctx, what+" is not noted", "user_id", userID, "error", err)
	}
}

// mayReadTokensOf returns nil if a may see the tokens of a user: an administrator, and that user.
func (a *Actor) mayReadTokensOf(userID string) error {
	if a.isUser(userID) {
		return nil
	}
	return a.mayReadUsers()
}

// mayRevokeTokensOf returns nil if a may revoke the tokens of a user.
func (a *Actor) mayRevokeTokensOf(userID string) error {
	if a.isUser(userID) {
		return nil
	}
	return a.mayChangeUsers()
}

// isUser reports whether a is a user.
func (a *Actor) isUser(userID string) bool {
	return a.Kind == UserActor && a.User != nil && a.User.ID == userID
}

// UserTokens lists the tokens of a user that have not expired, newest first.
func (s *Service) UserTokens(ctx context.Context, actor *Actor, userID string, p Page) ([]user.Token, error) {
	if err := actor.mayReadTokensOf(userID); err != nil {
		return nil, err
	}
	return read(ctx, s, actor, func(tx ReadTx) ([]user.Token, error) {
		if _, err := tx.User(ctx, actor.Account.ID, userID); err != nil {
			return nil, err
		}
		list, err := tokensInForce(ctx, tx, actor.Account.ID, userID, s.now())
		if p.After != "" {
			list = slices.DeleteFunc(list, func(t user.Token) bool { return t.ID >= p.After })
		}
		return list[:min(len(list), p.Limit)], err
	})
}

// tokensInForce returns the tokens of a user that have not expired.
func tokensInForce(ctx context.Context, tx UserReader, accountID, userID string, now time.Time) ([]user.Token, error) {
	list, err := tx.UserTokens(ctx, accountID, userID, Page{Limit: user.MaxTokens})
	return slices.DeleteFunc(list, func(t user.Token) bool { return !now.Before(t.ExpiresAt) }), err
}

// RevokeUserToken revokes a token of a user and returns it. When it returns, every node refuses it, since each reads it at
// each call.
func (s *Service) RevokeUserToken(ctx context.Context, actor *Actor, userID, tokenID string) (*user.Token, error) {
	if err := actor.mayRevokeTokensOf(userID); err != nil {
		return nil, err
	}
	return inTx(Urgent(ctx), s, actor, func(w *work) (*user.Token, error) {
		t, err := w.UserToken(ctx, actor.Account.ID, userID, tokenID)
		if err != nil {
			return nil, err
		}
		if !w.now.Before(t.ExpiresAt) {
			return nil, fault.Missing("token")
		}
		if err := w.DeleteUserToken(ctx, t); err != nil {
			return nil, err
		}
		return t, w.audit(ctx, audit.UserTokenRevoke, t.UserID, "", differ(tokenFields(t), nil))
	})
}

// RevokeUserTokens revokes all tokens of a user, and returns those that had not expired, newest first. Sign-ins of command
// lines that the user has approved, and that have no token yet, get none.
func (s *Service) RevokeUserTokens(ctx context.Context, actor *Actor, userID string) ([]user.Token, error) {
	if err := actor.mayRevokeTokensOf(userID); err != nil {
		return nil, err
	}
	return inTx(Urgent(ctx), s, actor, func(w *work) ([]user.Token, error) {
		if _, err := w.User(ctx, actor.Account.ID, userID); err != nil {
			return nil, err
		}
		list, err := tokensInForce(ctx, w, actor.Account.ID, userID, w.now)
		if err != nil {
			return nil, err
		}
		if err := w.DeleteUserTokens(ctx, userID); err != nil {
			return nil, err
		}
		for i := range list {
			if err := w.audit(ctx, audit.UserTokenRevoke, userID, "", differ(tokenFields(&list[i]), nil)); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
}

// tokenFields returns what audit records show of a token.
func tokenFields(t *user.Token) fields {
	return fields{"token_id": t.ID, "token_prefix": t.Prefix, "machine": orNil(t.Machine), "address": orNil(t.Address), "expires_at": timeOrNil(t.ExpiresAt)}
}

// newToken creates a token of a user for a command line.
func (w *work) newToken(ctx context.Context, userID, secret string, l *user.Login, address string) (*NewUserToken, error) {
	u, err := w.User(ctx, w.actor.Account.ID, userID)
	if err != nil {
		return nil, err
	}
	t := user.Token{
		ID: id.NewAt(id.UserToken, w.now), AccountID: u.AccountID, UserID: u.ID, Digest: apikey.DigestOf(secret), Prefix: apikey.PrefixOf(secret),
		Machine: l.Machine, Address: address, AuthTime: l.AuthTime, CreatedAt: w.now, ExpiresAt: w.now.Add(user.TokenLifetime),
	}
	if err := w.InsertUserToken(ctx, &t, user.MaxTokens, user.MaxAccountTokens); err != nil {
		return nil, err
	}
	w.actAs(u)
	return &NewUserToken{TokenOfUser{Token: t, User: *u, Account: w.actor.Account}, secret}, w.audit(ctx, audit.UserTokenCreate, u.ID, "", differ(nil, tokenFields(&t)))
}

// actAs makes a user the actor of what follows.
func (w *work) actAs(u *user.User) {
	by := *w.actor
	by.Kind, by.User = UserActor, u
	w.actor = &by
}

// newTokenSecret returns the string of a new token.
func (s *Service) newTokenSecret() (string, error) {
	secret, err := apikey.Generate(apikey.UserLevel, s.cfg.Random)
	if err != nil {
		return "", fmt.Errorf("create a token: %w", err)
	}
	return secret, nil
}
