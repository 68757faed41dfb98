package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
)

// Sealed is values of one kind that were encrypted with the secret key of a server.
type Sealed struct {
	Kind   string // as messages name it
	Values [][]byte
}

// sealedValues is how many values of each kind SealedValues returns at most.
const sealedValues = 10

// sealedKind says where values of one kind are. The value in a column of JSON is in base64.
type sealedKind struct {
	kind, table, column, query string
	base64                     bool
}

// sealedKinds returns where encrypted values are, in every schema.
func sealedKinds() []sealedKind {
	const others = `FROM gateways, json_each(iif(json_valid(gateways.upstream), gateways.upstream, '{}'), '$.others') o, json_each(o.value, '%s') h WHERE h.type = 'text'`
	const headers = `FROM gateways, json_each(iif(json_valid(gateways.%s), gateways.%[1]s, '{}'), '%s') h WHERE h.type = 'text'`
	return []sealedKind{
		{"webhook signing secrets", "webhooks", "secret", `SELECT secret FROM webhooks`, false},
		{"previous webhook signing secrets", "webhooks", "old_secret", `SELECT old_secret FROM webhooks WHERE old_secret IS NOT NULL`, false},
		{"upstream headers", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(headers, "upstream", "$.headers"), true},
		{"upstream headers", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(others, "$.headers"), true},
		{"upstream headers", "gateways", "upstream_headers", `SELECT h.value ` + fmt.Sprintf(headers, "upstream_headers", "$"), true},
		{"headers of checks", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(headers, "upstream", "$.health.headers"), true},
		{"headers of checks", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(others, "$.health.headers"), true},
		{"upstream client keys", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(headers, "upstream", "$.tls") + ` AND h.key = 'client_key'`, true},
		{"upstream client keys", "gateways", "upstream", `SELECT h.value ` + fmt.Sprintf(others, "$.tls") + ` AND h.key = 'client_key'`, true},
		{"upstream client keys", "gateways", "upstream_client_key", `SELECT upstream_client_key FROM gateways WHERE upstream_client_key IS NOT NULL`, false},
		{"repository credentials", "repositories", "credential", `SELECT credential FROM repositories WHERE credential IS NOT NULL`, false},
		{"repository hook secrets", "repositories", "hook_secret", `SELECT hook_secret FROM repositories WHERE hook_secret IS NOT NULL`, false},
		{"keys of certificates", "certificates", "key", `SELECT key FROM certificates WHERE key IS NOT NULL`, false},
		{"keys of accounts with certificate authorities", "certificate_accounts", "key", `SELECT key FROM certificate_accounts`, false},
		{"commit status tokens", "repositories", "status_token", `SELECT status_token FROM repositories WHERE status_token IS NOT NULL`, false},
	}
}

// SealedValues returns up to 10 values of each kind that is in the database at path, whose schema may be older than
// this binary's. It changes nothing there.
func SealedValues(ctx context.Context, path string) (list []Sealed, err error) {
	err = withReader(path, func(db *sql.DB) error {
		for _, k := range sealedKinds() {
			var known bool
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info(?) WHERE name = ?`, k.table, k.column).Scan(&known); err != nil {
				return err
			}
			if !known {
				continue
			}
			values, err := k.read(ctx, db)
			if err != nil {
				return err
			}
			if len(values) > 0 {
				list = append(list, Sealed{k.kind, values})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read database %s: %w", path, translate("read encrypted values", err))
	}
	return list, nil
}

// read returns some of the values.
func (k sealedKind) read(ctx context.Context, db *sql.DB) (values [][]byte, err error) {
	rows, err := db.QueryContext(ctx, k.query+` LIMIT ?+0`, sealedValues)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var value []byte
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		if k.base64 {
			if value, err = base64.StdEncoding.DecodeString(string(value)); err != nil {
				value = nil // damaged: it does not open
			}
		}
		values = append(values, value)
	}
	return values, rows.Err()
}
