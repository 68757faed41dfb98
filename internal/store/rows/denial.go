package rows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/issuer"
)

const denialColumns = `SELECT id, account_id, issuer_id, subject, jti, issued_before, until, reason, created_at FROM denials `

// scanDenial returns the denial of a row.
func scanDenial(r *Row) (d issuer.Denial, err error) {
	var created, until int64
	var before sql.NullInt64
	err = r.Scan(&d.ID, &d.AccountID, &d.IssuerID, (*text)(&d.Subject), (*text)(&d.JTI), &before, &until, &d.Reason, &created)
	d.IssuedBefore, d.Until, d.CreatedAt = MaybeInstant(before), Instant(until), Instant(created)
	return d, err
}

// Denial implements control.IssuerReader.
func (t *Reader) Denial(ctx context.Context, accountID, issuerID, denialID string, now time.Time) (*issuer.Denial, error) {
	return readOne(ctx, t, "denial", denialColumns+`WHERE id = $1 AND account_id = $2 AND issuer_id = $3 AND until > $4`,
		[]any{denialID, accountID, issuerID, Micros(now)}, scanDenial)
}

// Denials implements control.IssuerReader.
func (t *Reader) Denials(ctx context.Context, issuerID string, f control.DenialFilter, now time.Time, p control.Page) ([]issuer.Denial, error) {
	l := listQuery{from: `INDEXED BY denials_list `}
	l.where(`issuer_id = `, issuerID)
	l.where(`id < `, Below(p.After))
	l.where(`until > `, Micros(now))
	if f.Subject != "" {
		l.from = `INDEXED BY denials_subject `
		l.where(`subject = `, []byte(f.Subject))
	}
	if f.JTI != "" {
		l.where(`jti = `, []byte(f.JTI))
	}
	query, args := l.newest(p.Limit)
	return readAll(ctx, t, "read denials", denialColumns+query, args, scanDenial)
}

// InsertDenial implements control.IssuerStore.
func (t *Writer) InsertDenial(ctx context.Context, d *issuer.Denial) error {
	err := t.QueueOne(ctx, "count denial", "issuer", `UPDATE issuers SET denials = denials + 1 WHERE id = $1 AND account_id = $2`, d.IssuerID, d.AccountID)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert denial", `INSERT INTO denials (id, account_id, issuer_id, subject, jti, issued_before, until, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, d.ID, d.AccountID, d.IssuerID, []byte(d.Subject), []byte(d.JTI), MaybeMicros(d.IssuedBefore),
		Micros(d.Until), d.Reason, Micros(d.CreatedAt))
}

// DeleteDenial implements control.IssuerStore.
func (t *Writer) DeleteDenial(ctx context.Context, d *issuer.Denial) error {
	err := t.QueueOne(ctx, "delete denial", "denial", `DELETE FROM denials WHERE id = $1 AND account_id = $2 AND issuer_id = $3`, d.ID, d.AccountID, d.IssuerID)
	if err != nil {
		return err
	}
	return t.uncountDenials(ctx, d.IssuerID, 1)
}

// uncountDenials counts that n denials of an issuer, which may be deleted, are gone.
func (t *Writer) uncountDenials(ctx context.Context, issuerID string, n int) error {
	return t.Queue(ctx, "count denials", `UPDATE issuers SET denials = denials - $1 WHERE id = $2`, n, issuerID)
}

// goneIssuer is an issuer that was deleted and has denials. It looks at each issuer that has some, and not at each denial.
const goneIssuer = `WITH RECURSIVE issued(id) AS (SELECT min(issuer_id) FROM denials
	UNION ALL SELECT (SELECT min(issuer_id) FROM denials WHERE issuer_id > issued.id) FROM issued WHERE issued.id IS NOT NULL)
	SELECT id FROM issued WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM issuers WHERE issuers.id = issued.id) LIMIT 1`

// TrimDenials implements control.Trimmer.
func (t *Writer) TrimDenials(ctx context.Context, ended time.Time, limit int) (more bool, err error) {
	const remove = `DELETE FROM denials WHERE id IN (SELECT id FROM denials INDEXED BY denials_until WHERE until < $1 LIMIT $2) RETURNING issuer_id`
	args := []any{Micros(ended), Limit(limit)}
	found, err := t.MayDelete(ctx, "look for denials that have ended", remove, args...)
	if err != nil {
		return false, err
	}
	removed := map[string]int{}
	if found {
		err := t.Query(ctx, "remove denials that have ended", remove, args, func(r *Row) error {
			var issuerID string
			err := r.Scan(&issuerID)
			removed[issuerID]++
			return err
		})
		if err != nil {
			return false, err
		}
	}
	for issuerID, n := range removed {
		if err := t.uncountDenials(ctx, issuerID, n); err != nil {
			return false, err
		}
	}
	if len(removed) > 0 {
		return true, nil
	}
	var gone string
	if err := t.Query(ctx, "look for denials of deleted issuers", goneIssuer, nil, func(r *Row) error { return r.Scan(&gone) }); err != nil || gone == "" {
		return false, err
	}
	n, err := t.Delete(ctx, "remove denials of a deleted issuer", `DELETE FROM denials WHERE id IN (SELECT id FROM denials INDEXED BY denials_list WHERE issuer_id = $1 LIMIT $2)`, gone, limit)
	return n > 0, err
}

// DenialByID implements snapshot.IssuerSource.
func (s *Store) DenialByID(ctx context.Context, denialID string) (*issuer.Denial, error) {
	d, err := read(ctx, s, Changed, func(t *Reader) (*issuer.Denial, error) {
		return readOne(ctx, t, "denial", denialColumns+`WHERE id = $1`, []any{denialID}, scanDenial)
	})
	return d, s.engine.OfRecord(err)
}

// EachDenial implements snapshot.IssuerSource. f must not wait for another reading call of the store.
func (s *Store) EachDenial(ctx context.Context, issuerID string, f func(*issuer.Denial) error) error {
	err := s.engine.Read(ctx, ChangedStreams, func(t *Reader) error {
		return t.stream(ctx, "stream denials", denialColumns+`INDEXED BY denials_list WHERE issuer_id = $1`, []any{issuerID}, func(r *Row) (failed, err error) {
			d, err := scanDenial(r)
			if err != nil {
				return nil, Decoded(err)
			}
			return f(&d), nil
		})
	})
	return s.engine.OfRecord(err)
}
