package rows

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

const certificateColumns = `SELECT id, account_id, gateway_id, hostname, key, progress, created_at, version FROM certificates `

func scanCertificate(r *Row) (c acme.Certificate, err error) {
	var created int64
	var progress string
	if err := r.Scan(&c.ID, &c.AccountID, &c.GatewayID, &c.Hostname, &c.Key, &progress, &created, &c.Version); err != nil {
		return c, err
	}
	c.CreatedAt = Instant(created)
	if err := json.Unmarshal([]byte(progress), &c.Progress); err != nil {
		return c, fmt.Errorf("decode the progress of certificate %s: %w", c.ID, err)
	}
	return c, nil
}

// Certificate implements control.CertificateReader.
func (t *Reader) Certificate(ctx context.Context, accountID, certificateID string) (*acme.Certificate, error) {
	return readOne(ctx, t, "certificate", certificateColumns+`WHERE id = $1 AND account_id = $2`, []any{certificateID, accountID}, scanCertificate)
}

// Certificates implements control.CertificateReader.
func (t *Reader) Certificates(ctx context.Context, accountID string, f control.CertificateFilter, p control.Page) ([]acme.Certificate, error) {
	l := listQuery{from: `INDEXED BY certificates_list `}
	l.where(`account_id = `, accountID)
	l.where(`id < `, Below(p.After))
	if f.Hostname != "" {
		l.where(`hostname = `, f.Hostname)
	}
	if f.Query != "" {
		l.contains(f.Query, "hostname")
	}
	query, args := l.newest(p.Limit)
	return readAll(ctx, t, "read certificates", certificateColumns+query, args, scanCertificate)
}

// CertificateByID implements control.CertificateReader.
func (t *Reader) CertificateByID(ctx context.Context, certificateID string) (*acme.Certificate, error) {
	return readOne(ctx, t, "certificate", certificateColumns+`WHERE id = $1`, []any{certificateID}, scanCertificate)
}

// CertificateOf implements control.CertificateReader.
func (t *Reader) CertificateOf(ctx context.Context, gatewayID string) (*acme.Certificate, error) {
	return readOne(ctx, t, "certificate", certificateColumns+`WHERE gateway_id = $1`, []any{gatewayID}, scanCertificate)
}

// HasCertificates implements control.CertificateReader.
func (t *Reader) HasCertificates(ctx context.Context, accountID string, n int) (bool, error) {
	if accountID == "" {
		return t.Exists(ctx, "count certificates", `SELECT 1 FROM certificates ORDER BY due_at LIMIT 1 OFFSET $1`, Limit(n-1))
	}
	return t.Exists(ctx, "count certificates", `SELECT 1 FROM certificates INDEXED BY certificates_list WHERE account_id = $1 ORDER BY id LIMIT 1 OFFSET $2`, accountID, Limit(n-1))
}

// DueCertificates implements control.CertificateReader.
func (t *Reader) DueCertificates(ctx context.Context, now time.Time, limit int) ([]acme.Certificate, error) {
	return readAll(ctx, t, "read due certificates", certificateColumns+`INDEXED BY certificates_due WHERE due_at <= $1
		AND account_id IN (SELECT id FROM accounts WHERE state = $2) ORDER BY due_at LIMIT $3`, []any{Micros(now), account.Active, Limit(limit)}, scanCertificate)
}

// EachCertificate calls f for each certificate, in the order of their identifiers, and bad for one whose record cannot be read.
func (s *Store) EachCertificate(ctx context.Context, f func(*acme.Certificate), bad func(certificateID string, err error)) error {
	const most = 200
	for after := ""; ; {
		ids, err := read(ctx, s, OneOfThem, func(t *Reader) ([]string, error) {
			return t.Texts(ctx, "list certificates", `SELECT id FROM certificates WHERE id > $1 ORDER BY id LIMIT $2`, after, most)
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		page, err := s.certificates(ctx, ids...)
		if isUndecodable(err) {
			page, err = nil, nil
			for _, id := range ids {
				one, err := s.certificates(ctx, id)
				switch {
				case isUndecodable(err):
					bad(id, err)
				case err != nil:
					return err
				}
				page = append(page, one...)
			}
		}
		if err != nil {
			return err
		}
		for i := range page {
			f(&page[i])
		}
	}
}

func isUndecodable(err error) bool {
	var undecodable *Undecodable
	return errors.As(err, &undecodable)
}

func (s *Store) certificates(ctx context.Context, ids ...string) ([]acme.Certificate, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) ([]acme.Certificate, error) {
		return readAll(ctx, t, "read certificates", certificateColumns+`WHERE id = ANY ($1)`, []any{ids}, scanCertificate)
	})
}

// ServedCertificate returns a certificate, or nil if there is none or its record cannot be read; then damaged says why.
func (s *Store) ServedCertificate(ctx context.Context, certificateID string) (c *acme.Certificate, damaged, err error) {
	list, err := s.certificates(ctx, certificateID)
	switch {
	case isUndecodable(err):
		return nil, err, nil
	case err != nil || len(list) == 0:
		return nil, nil, err
	}
	return &list[0], nil, nil
}

// NewCertificateNames implements control.CertificateReader.
func (t *Reader) NewCertificateNames(ctx context.Context, accountID, hostname, domain string, since time.Time) (ofAccount, ofDomain control.Since, known bool, err error) {
	err = t.Query(ctx, "find a hostname", `SELECT count(*) > 0 FROM certificate_names WHERE account_id = $1 AND hostname = $2 AND renewal = false AND at > $3`,
		[]any{accountID, hostname, Micros(since)}, func(r *Row) error { return r.Scan(&known) })
	if err == nil {
		ofAccount, err = t.namesSince(ctx, `account_id = $1 AND renewal = false AND at > $2`, accountID, Micros(since))
	}
	if err == nil {
		ofDomain, err = t.namesSince(ctx, `domain = $1 AND at > $2 AND renewal = false`, domain, Micros(since))
	}
	return ofAccount, ofDomain, known, err
}

// CertificateRenewals implements control.CertificateReader.
func (t *Reader) CertificateRenewals(ctx context.Context, accountID, hostname string, since time.Time) (control.Since, error) {
	return t.namesSince(ctx, `account_id = $1 AND hostname = $2 AND renewal = true AND at > $3`, accountID, hostname, Micros(since))
}

// namesSince counts the rows of certificate_names that a condition selects.
func (t *Reader) namesSince(ctx context.Context, condition string, args ...any) (n control.Since, err error) {
	var first sql.NullInt64
	err = t.Query(ctx, "count hostnames", `SELECT count(*), min(at) FROM certificate_names WHERE `+condition, args, func(r *Row) error { return r.Scan(&n.Count, &first) })
	n.First = MaybeInstant(first)
	return n, err
}

// CertificateAccount implements control.CertificateReader.
func (t *Reader) CertificateAccount(ctx context.Context, directory string) (*acme.Account, error) {
	return readOne(ctx, t, "account with the certificate authority", `SELECT directory, key, location FROM certificate_accounts WHERE directory = $1`, []any{directory},
		func(r *Row) (a acme.Account, err error) { return a, r.Scan(&a.Directory, &a.Key, &a.Location) })
}

// certificateValues returns the values that InsertCertificate and UpdateCertificate write, in their order.
func certificateValues(c *acme.Certificate) ([]any, error) {
	progress, err := json.Marshal(&c.Progress)
	if err != nil {
		return nil, fmt.Errorf("encode the progress of certificate %s: %w", c.ID, err)
	}
	return []any{maybeBytes(c.Key), string(progress), Micros(c.DueAt()), c.Version, c.ID}, nil
}

// InsertCertificate implements control.CertificateStore.
func (t *Writer) InsertCertificate(ctx context.Context, c *acme.Certificate) error {
	values, err := certificateValues(c)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert certificate", `INSERT INTO certificates (key, progress, due_at, version, id, account_id, gateway_id, hostname, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, append(values, c.AccountID, c.GatewayID, c.Hostname, Micros(c.CreatedAt))...)
}

// UpdateCertificate implements control.CertificateStore.
func (t *Writer) UpdateCertificate(ctx context.Context, c *acme.Certificate) error {
	values, err := certificateValues(c)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update certificate", "certificate", `UPDATE certificates SET key = $1, progress = $2, due_at = $3, version = $4 WHERE id = $5`, values...)
}

// DeleteCertificate implements control.CertificateStore.
func (t *Writer) DeleteCertificate(ctx context.Context, certificateID string) error {
	return t.QueueOne(ctx, "delete certificate", "certificate", `DELETE FROM certificates WHERE id = $1`, certificateID)
}

// NoteCertificateName implements control.CertificateStore.
func (t *Writer) NoteCertificateName(ctx context.Context, accountID, hostname, domain string, renewal bool, at, since time.Time) error {
	err := t.Queue(ctx, "forget hostnames", `DELETE FROM certificate_names WHERE account_id = $1 AND at <= $2`, accountID, Micros(since))
	if err != nil {
		return err
	}
	return t.Queue(ctx, "note a hostname", `INSERT INTO certificate_names (account_id, hostname, renewal, at, domain) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (account_id, hostname, renewal, at) DO NOTHING`, accountID, hostname, renewal, Micros(at), domain)
}

// PutCertificateAccount implements control.CertificateStore.
func (t *Writer) PutCertificateAccount(ctx context.Context, a *acme.Account) error {
	return t.Queue(ctx, "store an account with a certificate authority", `INSERT INTO certificate_accounts (directory, key, location) VALUES ($1, $2, $3)
		ON CONFLICT (directory) DO UPDATE SET key = excluded.key, location = excluded.location`, a.Directory, a.Key, a.Location)
}

// certificates removes certificates of a deleted account. Nodes forget them.
func (r *removal) certificates(ctx context.Context) error {
	ids, err := r.read.Texts(ctx, "find certificates of a deleted account", `SELECT id FROM certificates INDEXED BY certificates_list WHERE account_id = $1 ORDER BY id LIMIT $2`,
		r.accountID, r.Most(certificateWeight))
	if err != nil || len(ids) == 0 {
		return err
	}
	r.Removed(len(ids), certificateWeight)
	for _, id := range ids {
		if _, err := r.AppendChange(ctx, snapshot.CertificateChange, id); err != nil {
			return err
		}
	}
	return r.Queue(ctx, "remove certificates of a deleted account", `DELETE FROM certificates WHERE id = ANY ($1)`, ids)
}
