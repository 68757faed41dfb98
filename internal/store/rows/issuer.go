package rows

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/issuer"
)

const (
	issuerFields  = `id, account_id, name, settings, seen, document, last_error, fetch_at, created_at, version, denials`
	issuerColumns = `SELECT ` + issuerFields + ` FROM issuers `
)

// scanIssuer returns the issuer of a row.
func scanIssuer(r *Row) (i issuer.Issuer, err error) {
	var created int64
	var next sql.NullInt64
	var settings, seen string
	if err := r.Scan(&i.ID, &i.AccountID, &i.Name, &settings, &seen, &i.Document, &i.LastError, &next, &created, &i.Version, &i.Denials); err != nil {
		return i, err
	}
	i.FetchAt, i.CreatedAt = MaybeInstant(next), Instant(created)
	if err := json.Unmarshal([]byte(settings), &i.Settings); err != nil {
		return i, fmt.Errorf("decode the settings of issuer %s: %w", i.ID, err)
	}
	if err := json.Unmarshal([]byte(seen), &i.Seen); err != nil {
		return i, fmt.Errorf("decode the keys of issuer %s: %w", i.ID, err)
	}
	return i, nil
}

// Issuer implements control.IssuerReader.
func (t *Reader) Issuer(ctx context.Context, accountID, issuerID string) (*issuer.Issuer, error) {
	return readOne(ctx, t, "issuer", issuerColumns+`WHERE id = $1 AND account_id = $2`, []any{issuerID, accountID}, scanIssuer)
}

// Issuers implements control.IssuerReader.
func (t *Reader) Issuers(ctx context.Context, accountID string, f control.IssuerFilter, p control.Page) ([]issuer.Issuer, error) {
	query, args := byName("issuers_list", accountID, f.Name, f.Query, p, "name")
	return readAll(ctx, t, "read issuers", issuerColumns+query, args, scanIssuer)
}

// IssuerUse implements control.IssuerReader. An account has few issuers.
func (t *Reader) IssuerUse(ctx context.Context, accountID, without string) (use control.IssuerUse, err error) {
	err = t.Query(ctx, "read how much issuers take", `SELECT count(*), coalesce(sum(octet_length(settings)), 0),
		coalesce(sum(octet_length(document) + octet_length(seen)), 0), coalesce(sum(denials), 0) FROM issuers INDEXED BY issuers_list WHERE account_id = $1 AND id <> $2`,
		[]any{accountID, without}, func(r *Row) error { return r.Scan(&use.Issuers, &use.Bytes, &use.Fetched, &use.Denials) })
	return use, err
}

// DueIssuers implements control.IssuerReader.
func (t *Reader) DueIssuers(ctx context.Context, now time.Time, perAccount, limit int) ([]issuer.Issuer, error) {
	return readAll(ctx, t, "read issuers that are due", `SELECT `+issuerFields+` FROM (SELECT `+issuerFields+`,
		row_number() OVER (PARTITION BY account_id ORDER BY fetch_at, id) AS turn FROM (
			SELECT `+issuerFields+` FROM issuers INDEXED BY issuers_due WHERE fetch_at <= $1
			UNION ALL SELECT `+issuerFields+` FROM issuers INDEXED BY issuers_due WHERE fetch_at > $2) AS of_all
		WHERE account_id IN (SELECT id FROM accounts WHERE state = 'active')) AS due
		WHERE turn <= $3 ORDER BY turn, fetch_at, id LIMIT $4`, []any{Micros(now), Micros(now.Add(issuer.LatestFetch)), perAccount, Limit(limit)}, scanIssuer)
}

// UnreachableIssuers implements control.IssuerReader.
func (t *Reader) UnreachableIssuers(ctx context.Context) (n int, err error) {
	err = t.Query(ctx, "count unreachable issuers", `SELECT count(*) FROM issuers INDEXED BY issuers_unreachable WHERE last_error <> ''`, nil,
		func(r *Row) error { return r.Scan(&n) })
	return n, err
}

// IssuersNamed implements control.IssuerReader.
func (t *Reader) IssuersNamed(ctx context.Context, accountID string, names []string) ([]control.NamedIssuer, error) {
	return readAll(ctx, t, "read issuers by name", `SELECT name, settings FROM issuers WHERE account_id = $1 AND name = ANY ($2)`, []any{accountID, names}, func(r *Row) (n control.NamedIssuer, err error) {
		var settings string
		if err := r.Scan(&n.Name, &settings); err != nil {
			return n, err
		}
		return n, json.Unmarshal([]byte(settings), &n)
	})
}

// IssuersOfURL implements control.IssuerReader. Settings begin with the URL.
func (t *Reader) IssuersOfURL(ctx context.Context, accountID, url string) ([]string, error) {
	quoted, err := json.Marshal(url)
	if err != nil {
		return nil, fmt.Errorf("encode the URL of an issuer: %w", err)
	}
	begin := `{"issuer":` + string(quoted) + `,`
	return readAll(ctx, t, "read issuers by URL", `SELECT name FROM issuers WHERE account_id = $1 AND substr(settings, 1, $2) = $3`, []any{accountID, utf8.RuneCountInString(begin), begin}, func(r *Row) (name string, err error) {
		return name, r.Scan(&name)
	})
}

// GatewaysOfIssuer implements control.IssuerReader. It reads an index of the gateways of the account that name any issuer.
func (t *Reader) GatewaysOfIssuer(ctx context.Context, accountID, name string, limit int) ([]control.IssuerUser, error) {
	return readAll(ctx, t, "read gateways of an issuer", `SELECT id, name, issuers FROM gateways INDEXED BY gateways_issuers
		WHERE account_id = $1 AND issuers IS NOT NULL AND strpos(issuers, $2) > 0 ORDER BY id LIMIT $3`, []any{accountID, listOfIssuers([]string{name}), Limit(limit)}, func(r *Row) (u control.IssuerUser, err error) {
		var issuers string
		err = r.Scan(&u.GatewayID, &u.Gateway, &issuers)
		u.Issuers = strings.Fields(issuers)
		return u, err
	})
}

// listOfIssuers returns the names of issuers as gateways have them, each between spaces, or nil for none.
func listOfIssuers(names []string) any {
	if len(names) == 0 {
		return nil
	}
	return " " + strings.Join(names, " ") + " "
}

// issuerValues returns the values that InsertIssuer and UpdateIssuer write, in their order.
func issuerValues(i *issuer.Issuer) ([]any, error) {
	settings, err := json.Marshal(i.Settings)
	if err != nil {
		return nil, fmt.Errorf("encode the settings of issuer %s: %w", i.ID, err)
	}
	seen := i.Seen
	if seen == nil {
		seen = []issuer.SeenKey{}
	}
	keys, err := json.Marshal(seen)
	if err != nil {
		return nil, fmt.Errorf("encode the keys of issuer %s: %w", i.ID, err)
	}
	return []any{i.Name, string(settings), string(keys), i.Document, i.LastError, MaybeMicros(i.FetchAt), i.Version, i.ID, i.AccountID}, nil
}

// InsertIssuer implements control.IssuerStore.
func (t *Writer) InsertIssuer(ctx context.Context, i *issuer.Issuer) error {
	values, err := issuerValues(i)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert issuer", `INSERT INTO issuers (name, settings, seen, document, last_error, fetch_at, version, id, account_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, append(values, Micros(i.CreatedAt))...)
}

// UpdateIssuer implements control.IssuerStore.
func (t *Writer) UpdateIssuer(ctx context.Context, i *issuer.Issuer) error {
	values, err := issuerValues(i)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update issuer", "issuer", `UPDATE issuers SET name = $1, settings = $2, seen = $3, document = $4, last_error = $5,
		fetch_at = $6, version = $7 WHERE id = $8 AND account_id = $9`, values...)
}

// DeleteIssuer implements control.IssuerStore.
func (t *Writer) DeleteIssuer(ctx context.Context, accountID, issuerID string) error {
	return t.QueueOne(ctx, "delete issuer", "issuer", `DELETE FROM issuers WHERE id = $1 AND account_id = $2`, issuerID, accountID)
}
