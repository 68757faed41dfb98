package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
)

// Session implements control.SessionReader.
func (t *Reader) Session(ctx context.Context, digest [32]byte) (*control.Session, error) {
	s := control.Session{Digest: digest}
	err := t.QueryRow(ctx, "session", `SELECT s.account_id, s.key_id, s.created_at, s.expires_at, k.digest, k.prefix
		FROM sessions s CROSS JOIN keys k ON k.id = s.key_id WHERE s.digest = $1`,
		[]any{digest[:]}, func(r *Row) error {
			var (
				created, expires int64
				keyDigest        []byte
			)
			if err := r.Scan(&s.AccountID, &s.KeyID, &created, &expires, &keyDigest, &s.KeyPrefix); err != nil {
				return err
			}
			if copy(s.KeyDigest[:], keyDigest) != len(s.KeyDigest) {
				return fmt.Errorf("the digest of key %s has %d bytes", s.KeyID, len(keyDigest))
			}
			s.CreatedAt, s.ExpiresAt = Instant(created), Instant(expires)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// sessionBound is how many sessions a key, a user or an account may have.
type sessionBound struct {
	end  string // the statement that ends those beyond a number, from the identifier and that number
	of   string // the identifier
	most int
}

// endOldestSessions makes room for one more session within each bound.
func (t *Writer) endOldestSessions(ctx context.Context, bounds ...sessionBound) error {
	for _, b := range bounds {
		if err := t.Queue(ctx, "end the oldest sessions", b.end, b.of, b.most-1); err != nil {
			return err
		}
	}
	return nil
}

// InsertSession implements control.SessionStore.
func (t *Writer) InsertSession(ctx context.Context, s *control.Session, ofKey, ofAccount int) error {
	if err := t.endOldestSessions(ctx,
		sessionBound{`DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_key WHERE key_id = $1 ORDER BY created_at DESC LIMIT ALL OFFSET $2)`, s.KeyID, ofKey},
		sessionBound{`DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_account WHERE account_id = $1 ORDER BY created_at DESC LIMIT ALL OFFSET $2)`, s.AccountID, ofAccount},
	); err != nil {
		return err
	}
	return t.Queue(ctx, "insert session", `INSERT INTO sessions (digest, account_id, key_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)`,
		s.Digest[:], s.AccountID, s.KeyID, Micros(s.CreatedAt), Micros(s.ExpiresAt))
}

// DeleteSession implements control.SessionStore.
func (t *Writer) DeleteSession(ctx context.Context, digest [32]byte) error {
	return t.Queue(ctx, "delete session", `DELETE FROM sessions WHERE digest = $1`, digest[:])
}

// TrimSessions implements control.SessionStore.
func (t *Writer) TrimSessions(ctx context.Context, expired time.Time, limit int) (more bool, err error) {
	n, err := t.Delete(ctx, "trim sessions", `DELETE FROM sessions WHERE digest IN
		(SELECT digest FROM sessions INDEXED BY sessions_expiry WHERE expires_at <= $1 LIMIT $2)`, Micros(expired), limit)
	return n == int64(limit), err
}
