package control

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// What a session is (contract, 3.4). The bounds are numbers of sessions of a key and of an account:
// beyond them the oldest session ends.
const (
	SessionLifetime    = 12 * time.Hour
	SessionsPerKey     = 100
	SessionsPerAccount = 1000

	sessionBytes = 32 // of randomness in the value of the cookie
)

// Session is a browser that signed in with an account-level key (contract, 3.4).
type Session struct {
	Digest    [32]byte // SHA-256 of the value of the cookie
	AccountID string
	KeyID     string
	CreatedAt time.Time
	ExpiresAt time.Time

	// Of the key; only in results.
	KeyDigest apikey.Digest
	KeyPrefix string
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
	random := make([]byte, sessionBytes)
	if _, err := io.ReadFull(s.cfg.Random, random); err != nil {
		return "", time.Time{}, fmt.Errorf("create a session: %w", err)
	}
	value = base64.RawURLEncoding.EncodeToString(random)
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
// expired, the error is fault.NotFound. The caller must check the present state of its key.
func (s *Service) SignedIn(ctx context.Context, value string) (*Session, error) {
	session, err := view(ctx, s, func(tx ReadTx) (*Session, error) { return tx.Session(ctx, sha256.Sum256([]byte(value))) })
	if err == nil && !s.now().Before(session.ExpiresAt) {
		return nil, fault.Missing("session")
	}
	return session, err
}

// SignOut ends the session with the given value of the cookie, if there is one.
func (s *Service) SignOut(ctx context.Context, value string) error {
	return s.cfg.Store.Update(ctx, func(tx Tx) error { return tx.DeleteSession(ctx, sha256.Sum256([]byte(value))) })
}
