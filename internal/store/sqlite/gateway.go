package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
)

const gatewayColumns = `SELECT id, account_id, name, upstream, hostname, host_given,
	global_sustained, global_burst, timeout, cors, max_body_bytes, requests, revision, is_default, created_at, version FROM gateways `

func scanGateway(r rows.Row) (gateway.Gateway, error) {
	var (
		g                gateway.Gateway
		sustained, burst string
		upstream         string
		requests         string
		cors             sql.NullString
		created          int64
	)
	err := r.Scan(&g.ID, &g.AccountID, &g.Name, &upstream, &g.Hostname, &g.HostGiven,
		&sustained, &burst, &g.Timeout, &cors, &g.MaxBodyBytes, &requests, &g.Revision, &g.Default, &created, &g.Version)
	if err != nil {
		return g, err
	}
	g.CreatedAt = rows.Instant(created)
	if g.GlobalLimit, err = stored.Limit(sustained, burst, "", ""); err != nil {
		return g, err
	}
	if err := json.Unmarshal([]byte(upstream), &g.Upstream); err != nil {
		return g, fmt.Errorf("decode the upstream of gateway %s: %w", g.ID, err)
	}
	if err := json.Unmarshal([]byte(requests), &g.Requests); err != nil {
		return g, fmt.Errorf("decode the settings of requests of gateway %s: %w", g.ID, err)
	}
	err = fromJSON(cors, &g.CORS)
	return g, err
}

// gatewayValues returns the values that InsertGateway and UpdateGateway write, in their order.
func gatewayValues(g *gateway.Gateway) ([]any, error) {
	upstream, err := json.Marshal(&g.Upstream)
	if err != nil {
		return nil, fmt.Errorf("encode the upstream of gateway %s: %w", g.ID, err)
	}
	requests, err := json.Marshal(&g.Requests)
	if err != nil {
		return nil, fmt.Errorf("encode the settings of requests of gateway %s: %w", g.ID, err)
	}
	cors, err := maybeJSON(g.CORS, g.CORS == nil)
	if err != nil {
		return nil, err
	}
	return []any{g.Name, string(upstream), g.Hostname, g.HostGiven,
		g.GlobalLimit.Sustained.String(), g.GlobalLimit.Burst.String(), g.Timeout, cors,
		g.MaxBodyBytes, string(requests), g.Revision, g.Default, g.Version}, nil
}

func (t *readTx) gateways(ctx context.Context, rest string, args ...any) ([]gateway.Gateway, error) {
	var list []gateway.Gateway
	err := t.Query(ctx, "read gateways", gatewayColumns+rest, args, func(r rows.Row) error {
		g, err := scanGateway(r)
		list = append(list, g)
		return err
	})
	return list, err
}

func (t *readTx) gateway(ctx context.Context, rest string, args ...any) (*gateway.Gateway, error) {
	var g gateway.Gateway
	err := t.QueryRow(ctx, "gateway", gatewayColumns+rest, args, func(r rows.Row) (err error) {
		g, err = scanGateway(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Gateway implements control.GatewayReader.
func (t *readTx) Gateway(ctx context.Context, accountID, gatewayID string) (*gateway.Gateway, error) {
	return t.gateway(ctx, `WHERE id = ? AND account_id = ?`, gatewayID, accountID)
}

// Gateways implements control.GatewayReader.
func (t *readTx) Gateways(ctx context.Context, accountID string, p control.Page) ([]gateway.Gateway, error) {
	return t.gateways(ctx, `INDEXED BY gateways_list WHERE account_id = ? AND id < ? ORDER BY id DESC LIMIT ?+0`,
		accountID, rows.Below(p.After), rows.Limit(p.Limit))
}

// nthGateway finds whether an account has that many gateways more than its argument says.
const nthGateway = `SELECT 1 FROM gateways INDEXED BY gateways_list WHERE account_id = ? ORDER BY id LIMIT 1 OFFSET ?`

// HasGateways implements control.GatewayReader. It reads n entries of an index.
func (t *readTx) HasGateways(ctx context.Context, accountID string, n int) (found bool, err error) {
	err = t.Query(ctx, "count gateways", nthGateway, []any{accountID, n - 1}, func(rows.Row) error {
		found = true
		return nil
	})
	return found, err
}

// DefaultGateway implements control.GatewayReader.
func (t *readTx) DefaultGateway(ctx context.Context) (*gateway.Gateway, error) {
	return t.gateway(ctx, `WHERE is_default = 1`)
}

// InsertGateway implements control.GatewayStore.
func (t *tx) InsertGateway(ctx context.Context, g *gateway.Gateway) error {
	values, err := gatewayValues(g)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, "insert gateway", `INSERT INTO gateways (name, upstream, hostname, host_given,
		global_sustained, global_burst, timeout, cors, max_body_bytes, requests, revision, is_default, version,
		id, account_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append(values, g.ID, g.AccountID, rows.Micros(g.CreatedAt))...)
	return err
}

// UpdateGateway implements control.GatewayStore.
func (t *tx) UpdateGateway(ctx context.Context, g *gateway.Gateway) error {
	values, err := gatewayValues(g)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update gateway", "gateway", `UPDATE gateways SET name = ?, upstream = ?, hostname = ?,
		host_given = ?, global_sustained = ?, global_burst = ?, timeout = ?, cors = ?,
		max_body_bytes = ?, requests = ?, revision = ?, is_default = ?, version = ? WHERE id = ? AND account_id = ?`,
		append(values, g.ID, g.AccountID)...)
}

// DeleteGateway implements control.GatewayStore.
func (t *tx) DeleteGateway(ctx context.Context, accountID, gatewayID string) error {
	own := `(SELECT id FROM gateways WHERE id = ? AND account_id = ?)`
	if _, err := t.Exec(ctx, "drop the route table", `UPDATE route_tables SET state = CASE WHEN EXISTS (SELECT 1 FROM ended_gateways WHERE id = route_tables.gateway_id) THEN 3 ELSE 2 END
		WHERE id = (SELECT table_id FROM gateways WHERE id = ? AND account_id = ?)`, gatewayID, accountID); err != nil {
		return err
	}
	// There may be a million of them, so they are removed later.
	if _, err := t.Exec(ctx, "give up revisions", `UPDATE revision_counts SET gone = 1 WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, "delete repository", `DELETE FROM repositories WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	return t.QueueOne(ctx, "delete gateway", "gateway", `DELETE FROM gateways WHERE id = ? AND account_id = ?`, gatewayID, accountID)
}

// HostnameOwner implements control.GatewayReader.
func (t *readTx) HostnameOwner(ctx context.Context, hostname string) (accountID string, err error) {
	err = t.Query(ctx, "find a hostname", `SELECT account_id FROM gateways WHERE hostname = ?`, []any{hostname}, func(r rows.Row) error {
		return r.Scan(&accountID)
	})
	return accountID, err
}

// GivenHostnames implements control.GatewayReader.
func (t *readTx) GivenHostnames(ctx context.Context, accountID string) ([]string, error) {
	return t.Texts(ctx, "read given hostnames", `SELECT hostname FROM gateways INDEXED BY gateways_list WHERE account_id = ? AND host_given = 1 ORDER BY id`, accountID)
}
