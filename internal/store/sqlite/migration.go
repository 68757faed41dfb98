package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/stored"
)

// goMigrations returns the migrations that SQL alone cannot do. The others are the files in
// migrations. Both share one sequence of numbers.
func goMigrations() []*goose.Migration {
	return []*goose.Migration{
		goose.NewGoMigration(8, &goose.GoFunc{RunTx: moveUpstream}, nil),
		goose.NewGoMigration(routePages, &goose.GoFunc{RunTx: moveRoutes}, nil),
	}
}

// routePages is the number of the migration that stores routes in pages.
const routePages = 17

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

// moveRoutes moves the routes from one row each into pages. It is written in Go because pages are
// compressed.
func moveRoutes(ctx context.Context, tx *sql.Tx) error {
	for _, statement := range []string{
		`CREATE TABLE route_tables (
			id          INTEGER PRIMARY KEY AUTOINCREMENT,
			gateway_id  TEXT    NOT NULL,
			revision_id TEXT    NOT NULL,   -- of a staged table, else ''
			state       INTEGER NOT NULL,   -- 0 staged, 1 current, 2 dropped
			version     INTEGER NOT NULL,   -- grows with every change
			created_at  INTEGER NOT NULL
		) STRICT`,
		`CREATE INDEX route_tables_rest ON route_tables (state, created_at)`,
		`CREATE INDEX route_tables_gateway ON route_tables (gateway_id)`,
		`CREATE TABLE route_pages (
			n        INTEGER PRIMARY KEY,
			table_id INTEGER NOT NULL,
			first    TEXT    NOT NULL,      -- identifier of the first route
			routes   INTEGER NOT NULL,      -- how many it has
			content  BLOB    NOT NULL,      -- see routepage.go
			UNIQUE (table_id, first)
		) STRICT`,
		`CREATE TABLE revision_parts (
			revision_id TEXT    NOT NULL,
			kind        INTEGER NOT NULL,   -- 0 packed content, 1 pages of routes
			n           INTEGER NOT NULL,
			content     BLOB    NOT NULL,
			UNIQUE (revision_id, kind, n)
		) STRICT`,
		`CREATE TABLE revisions_gone (id TEXT NOT NULL PRIMARY KEY) STRICT`,
		`CREATE TRIGGER revisions_deleted AFTER DELETE ON revisions BEGIN INSERT OR IGNORE INTO revisions_gone VALUES (OLD.id); END`,
		`ALTER TABLE gateways ADD COLUMN table_id INTEGER NOT NULL DEFAULT 0`,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	codec, err := stored.NewPageCodec()
	if err != nil {
		return err
	}
	gateways, err := gatewaysWithRoutes(ctx, tx)
	if err != nil {
		return err
	}
	for _, gatewayID := range gateways {
		if err := moveRoutesOf(ctx, tx, codec, gatewayID); err != nil {
			return fmt.Errorf("move the routes of gateway %s: %w", gatewayID, err)
		}
	}
	_, err = tx.ExecContext(ctx, `DROP TABLE routes`)
	return err
}

func gatewaysWithRoutes(ctx context.Context, tx *sql.Tx) (list []string, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT DISTINCT gateway_id FROM routes ORDER BY gateway_id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		list = append(list, id)
	}
	return list, rows.Err()
}

func moveRoutesOf(ctx context.Context, tx *sql.Tx, codec *stored.PageCodec, gatewayID string) error {
	routes, err := oldRoutes(ctx, tx, gatewayID)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) VALUES (?, '', 1, 1, 0)`, gatewayID)
	if err != nil {
		return err
	}
	table, err := result.LastInsertId()
	if err != nil {
		return err
	}
	for _, p := range codec.Pages(routes) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO route_pages (table_id, first, routes, content) VALUES (?, ?, ?, ?)`, table, p.First, p.Routes, p.Content); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `UPDATE gateways SET table_id = ? WHERE id = ?`, table, gatewayID)
	return err
}

// oldRoutes reads the routes of a gateway from one row each, in the order of their identifiers.
func oldRoutes(ctx context.Context, tx *sql.Tx, gatewayID string) (list []gateway.Route, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, path, methods, sustained, burst, daily, per, limit_by_api, auth, source, created_at, version
		FROM routes WHERE gateway_id = ? ORDER BY id`, gatewayID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var (
			r                                   = gateway.Route{GatewayID: gatewayID}
			methods, sustained, burst, day, per string
			created                             int64
		)
		err := rows.Scan(&r.ID, &r.Path, &methods, &sustained, &burst, &day, &per, &r.LimitByAPI, &r.Auth, &r.Source, &created, &r.Version)
		if err != nil {
			return nil, err
		}
		r.Methods, r.CreatedAt = strings.Fields(methods), instant(created)
		if r.RateLimit, err = stored.Limit(sustained, burst, day, per); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}
