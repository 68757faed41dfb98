package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// Session implements control.SessionReader.
func (t *readTx) Session(ctx context.Context, digest [32]byte) (*control.Session, error) {
	s := control.Session{Digest: digest}
	err := t.QueryRow(ctx, "session", `SELECT s.account_id, s.key_id, s.created_at, s.expires_at, k.digest, k.prefix
		FROM sessions s CROSS JOIN keys k ON k.id = s.key_id WHERE s.digest = ?`,
		[]any{digest[:]}, func(r rows.Row) error {
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
			s.CreatedAt, s.ExpiresAt = rows.Instant(created), rows.Instant(expires)
			return nil
		})
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// InsertSession implements control.SessionStore.
func (t *tx) InsertSession(ctx context.Context, s *control.Session, ofKey, ofAccount int) error {
	for _, bound := range []struct {
		query string
		id    string
		most  int
	}{
		{`DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_key WHERE key_id = ? ORDER BY created_at DESC LIMIT -1 OFFSET ?+0)`, s.KeyID, ofKey},
		{`DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions INDEXED BY sessions_account WHERE account_id = ? ORDER BY created_at DESC LIMIT -1 OFFSET ?+0)`, s.AccountID, ofAccount},
	} {
		if _, err := t.Exec(ctx, "end the oldest sessions", bound.query, bound.id, bound.most-1); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, "insert session", `INSERT INTO sessions (digest, account_id, key_id, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
		s.Digest[:], s.AccountID, s.KeyID, rows.Micros(s.CreatedAt), rows.Micros(s.ExpiresAt))
	return err
}

// DeleteSession implements control.SessionStore.
func (t *tx) DeleteSession(ctx context.Context, digest [32]byte) error {
	_, err := t.Exec(ctx, "delete session", `DELETE FROM sessions WHERE digest = ?`, digest[:])
	return err
}

// TrimSessions implements control.SessionStore.
func (t *tx) TrimSessions(ctx context.Context, expired time.Time, limit int) (more bool, err error) {
	n, err := t.Exec(ctx, "trim sessions", `DELETE FROM sessions WHERE digest IN
		(SELECT digest FROM sessions INDEXED BY sessions_expiry WHERE expires_at <= ? LIMIT ?+0)`, rows.Micros(expired), limit)
	return n == int64(limit), err
}
