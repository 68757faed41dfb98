package rows

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keygate/keygate/internal/control"
)

// StoredResponse implements control.IdempotencyReader.
func (t *Reader) StoredResponse(ctx context.Context, keyID, key string) (*control.StoredResponse, error) {
	a := control.StoredResponse{KeyID: keyID, Key: key}
	err := t.QueryRow(ctx, "stored response", `SELECT fingerprint, status, header, body, created_at FROM answers WHERE key_id = $1 AND key = $2`,
		[]any{keyID, key}, func(r *Row) error {
			var (
				fingerprint []byte
				header      sql.NullString
				created     int64
			)
			if err := r.Scan(&fingerprint, &a.Status, &header, &a.Body, &created); err != nil {
				return err
			}
			if copy(a.Fingerprint[:], fingerprint) != len(a.Fingerprint) {
				return fmt.Errorf("the fingerprint of a stored response has %d bytes", len(fingerprint))
			}
			a.CreatedAt = Instant(created)
			return fromJSON(header, &a.Header)
		})
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// PutStoredResponse implements control.IdempotencyStore. It replaces an older response.
func (t *Writer) PutStoredResponse(ctx context.Context, a *control.StoredResponse) error {
	header, err := maybeJSON(a.Header, len(a.Header) == 0)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "put stored response", `INSERT INTO answers (key_id, key, fingerprint, status, header, body, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (key_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
			header = excluded.header, body = excluded.body, created_at = excluded.created_at`,
		a.KeyID, a.Key, a.Fingerprint[:], a.Status, header, a.Body, Micros(a.CreatedAt))
}
