package control

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/user"
)

// What a session is (contract, 3.4). The bounds are numbers of sessions of a key and of an account:
// beyond them the oldest session ends.
const (
	SessionLifetime    = 12 * time.Hour
	SessionsPerKey     = 100
	SessionsPerAccount = 1000

	sessionBytes = 32 // of randomness in the value of the cookie
)

// Session is a browser that signed in with an account-level key (contract, 3.4) or as a user (identity.md, section 3).
type Session struct {
	Digest    [32]byte // SHA-256 of the value of the cookie
	AccountID string
	KeyID     string // "" for that of a user
	UserID    string // "" for that of a key
	CreatedAt time.Time
	ExpiresAt time.Time

	// Of the key; only in results.
	KeyDigest apikey.Digest
	KeyPrefix string

	// Only of a user.
	UsedAt   time.Time // when it was used last, as far as that is noted
	AuthTime time.Time // when the user has authenticated at the identity provider; zero if that is not known

	// Of the user; only in results.
	User    *user.User
	Account *account.Account
}

// SessionReader finds sessions.
type SessionReader interface {
	// Session returns a session, even if it has expired or its key is revoked.
	Session(ctx context.Context, digest [32]byte) (*Session, error)
}

// SessionStore finds and changes sessions.
type SessionStore interface {
	SessionReader
	// InsertSession adds a session. It removes the oldest ones so that the key then has at most
	// ofKey and the account at most ofAccount.
	InsertSession(ctx context.Context, s *Session, ofKey, ofAccount int) error
	// DeleteSession removes a session, if there is one.
	DeleteSession(ctx context.Context, digest [32]byte) error
	// TrimSessions removes up to limit sessions that have expired by the given time. more
	// reports whether there may be others.
	TrimSessions(ctx context.Context, expired time.Time, limit int) (more bool, err error)
}

// SignIn creates a session of a key, which must be the actor. It returns the value of the cookie, which nothing
// else shows, and when it expires.
func (s *Service) SignIn(ctx context.Context, actor *Actor) (value string, expiresAt time.Time, err error) {
	if value, err = s.randomValue(); err != nil {
		return "", time.Time{}, fmt.Errorf("create a session: %w", err)
	}
	made, err := inTx(ctx, s, actor, func(w *work) (*Session, error) {
		if actor.Kind != KeyActor {
			return nil, fault.Denied("only a key can sign in")
		}
		session := &Session{
			Digest: sha256.Sum256([]byte(value)), AccountID: actor.Account.ID, KeyID: actor.KeyID, CreatedAt: w.now, ExpiresAt: w.now.Add(SessionLifetime),
		}
		return session, w.InsertSession(ctx, session, SessionsPerKey, SessionsPerAccount)
	})
	if err != nil {
		return "", time.Time{}, err
	}
	return value, made.ExpiresAt, nil
}

// SignedIn returns the session with the given value of the cookie. If there is none, or it has
// expired, the error is fault.NotFound. The caller must check the present state of its key. The user of a session, if it
// has one, is as it is at present.
func (s *Service) SignedIn(ctx context.Context, value string) (*Session, error) {
	digest := sha256.Sum256([]byte(value))
	session, err := view(ctx, s, func(tx ReadTx) (*Session, error) {
		session, err := tx.Session(ctx, digest)
		if fault.CodeOf(err) == fault.NotFound {
			return s.userSession(ctx, tx, digest)
		}
		return session, err
	})
	if err == nil && !s.now().Before(session.ExpiresAt) {
		return nil, fault.Missing("session")
	}
	if err == nil && session.User != nil {
		s.noteUse(ctx, session)
	}
	return session, err
}

// SignOut ends the session with the given value of the cookie, if there is one.
func (s *Service) SignOut(ctx context.Context, value string) error {
	digest := sha256.Sum256([]byte(value))
	return s.cfg.Store.Update(ctx, func(tx Tx) error {
		return errors.Join(tx.DeleteSession(ctx, digest), tx.DeleteUserSession(ctx, digest))
	})
}
