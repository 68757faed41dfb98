package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
)

// goMigrations returns the migrations that SQL alone cannot do. The others are the files in
// migrations. Both share one sequence of numbers.
func goMigrations() []*goose.Migration {
	return []*goose.Migration{
		goose.NewGoMigration(8, &goose.GoFunc{RunTx: moveUpstream}, nil),
	}
}

// moveUpstream moves the upstream settings of a gateway from one column each into one JSON
// object. It is written in Go because the JSON has the encrypted bytes in base64, which
// SQLite cannot write. It has its own type for the object, which must not follow changes of
// gateway.Upstream.
func moveUpstream(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `ALTER TABLE gateways ADD COLUMN upstream TEXT NOT NULL DEFAULT '{}'`); err != nil {
		return err
	}
	upstreams, err := readUpstreams(ctx, tx)
	if err != nil {
		return err
	}
	for id, upstream := range upstreams {
		if _, err := tx.ExecContext(ctx, `UPDATE gateways SET upstream = ? WHERE id = ?`, upstream, id); err != nil {
			return err
		}
	}
	for _, column := range []string{"url", "ca", "headers", "client_certificate", "client_key", "connect_timeout", "idle_timeout", "max_connections"} {
		if _, err := tx.ExecContext(ctx, `ALTER TABLE gateways DROP COLUMN upstream_`+column); err != nil {
			return err
		}
	}
	return nil
}

// readUpstreams returns the JSON objects that moveUpstream stores, by gateway.
func readUpstreams(ctx context.Context, tx *sql.Tx) (_ map[string]string, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, upstream_url, upstream_headers, upstream_ca, upstream_client_certificate,
		upstream_client_key, upstream_connect_timeout, upstream_idle_timeout, upstream_max_connections FROM gateways`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	upstreams := map[string]string{}
	for rows.Next() {
		var (
			id      string
			headers sql.NullString
			u       struct {
				URL     string          `json:"url"`
				Headers json.RawMessage `json:"headers,omitempty"`
				TLS     struct {
					CA                string `json:"ca,omitempty"`
					ClientCertificate string `json:"client_certificate,omitempty"`
					ClientKey         []byte `json:"client_key,omitempty"`
				} `json:"tls,omitzero"`
				Timeouts struct {
					Connect string `json:"connect,omitempty"`
					Idle    string `json:"idle,omitempty"`
				} `json:"timeouts,omitzero"`
				MaxConnections int64 `json:"max_connections,omitempty"`
			}
		)
		err := rows.Scan(&id, &u.URL, &headers, &u.TLS.CA, &u.TLS.ClientCertificate,
			&u.TLS.ClientKey, &u.Timeouts.Connect, &u.Timeouts.Idle, &u.MaxConnections)
		if err != nil {
			return nil, err
		}
		if headers.Valid {
			u.Headers = json.RawMessage(headers.String)
		}
		object, err := json.Marshal(u)
		if err != nil {
			return nil, fmt.Errorf("encode the upstream of gateway %s: %w", id, err)
		}
		upstreams[id] = string(object)
	}
	return upstreams, rows.Err()
}
