package rows

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

const gatewayColumns = `SELECT id, account_id, name, shares_name, upstream, hostname, host_given,
	global_sustained, global_burst, timeout, cors, max_body_bytes, requests, revision, is_default, default_plan_id, canary, created_at, version FROM gateways `

func scanGateway(r *Row) (gateway.Gateway, error) {
	var (
		g gateway.Gateway
		c struct { // one allocation
			sustained, burst   string
			upstream, requests string
			cors, defaultPlan  sql.NullString
			canary             sql.NullString
			created            int64
		}
	)
	err := r.Scan(&g.ID, &g.AccountID, &g.Name, &g.SharesName, &c.upstream, &g.Hostname, &g.HostGiven,
		&c.sustained, &c.burst, &g.Timeout, &c.cors, &g.MaxBodyBytes, &c.requests, &g.Revision, &g.Default, &c.defaultPlan, &c.canary, &c.created, &g.Version)
	if err != nil {
		return g, err
	}
	g.DefaultPlanID, g.CreatedAt = c.defaultPlan.String, Instant(c.created)
	if g.GlobalLimit, err = rateLimit(c.sustained, c.burst, "", ""); err != nil {
		return g, err
	}
	if g.Upstream, g.Others, err = readUpstreams([]byte(c.upstream)); err != nil {
		return g, fmt.Errorf("decode the upstreams of gateway %s: %w", g.ID, err)
	}
	if err := json.Unmarshal([]byte(c.requests), &g.Requests); err != nil {
		return g, fmt.Errorf("decode the settings of requests of gateway %s: %w", g.ID, err)
	}
	if err := fromJSON(c.cors, &g.CORS); err != nil {
		return g, err
	}
	err = fromJSON(c.canary, &g.Canary)
	return g, err
}

// gatewayValues returns the values that InsertGateway and UpdateGateway write, in their order.
func gatewayValues(g *gateway.Gateway) ([]any, error) {
	upstream, err := StoredUpstreams(g)
	if err != nil {
		return nil, err
	}
	requests, err := json.Marshal(&g.Requests)
	if err != nil {
		return nil, fmt.Errorf("encode the settings of requests of gateway %s: %w", g.ID, err)
	}
	cors, err := maybeJSON(g.CORS, g.CORS == nil)
	if err != nil {
		return nil, err
	}
	return []any{g.Name, g.SharesName, string(upstream), g.Hostname, g.HostGiven,
		g.GlobalLimit.Sustained.String(), g.GlobalLimit.Burst.String(), g.Timeout, cors,
		g.MaxBodyBytes, string(requests), g.Revision, g.Default, maybeText(g.DefaultPlanID), g.CountTargets(), listOfIssuers(g.Requests.Issuers), g.Version}, nil
}

// StoredUpstreams returns the upstreams of g as they are stored.
func StoredUpstreams(g *gateway.Gateway) ([]byte, error) {
	b, err := json.Marshal(g.StoredUpstreams())
	if err != nil {
		return nil, fmt.Errorf("encode the upstreams of gateway %s: %w", g.ID, err)
	}
	return b, nil
}

func readUpstreams(content []byte) (gateway.Upstream, []gateway.Upstream, error) {
	var s gateway.StoredUpstreams
	err := json.Unmarshal(content, &s)
	return s.Upstream, s.Others, err
}

// SelectGateways reads the gateways that the rest of the query selects.
func (t *Reader) SelectGateways(ctx context.Context, rest string, args ...any) ([]gateway.Gateway, error) {
	return readAll(ctx, t, "read gateways", gatewayColumns+rest, args, scanGateway)
}

// SelectGateway reads the only gateway that the rest of the query selects.
func (t *Reader) SelectGateway(ctx context.Context, rest string, args ...any) (*gateway.Gateway, error) {
	return readOne(ctx, t, "gateway", gatewayColumns+rest, args, scanGateway)
}

// Gateway implements control.GatewayReader.
func (t *Reader) Gateway(ctx context.Context, accountID, gatewayID string) (*gateway.Gateway, error) {
	return t.SelectGateway(ctx, `WHERE id = $1 AND account_id = $2`, gatewayID, accountID)
}

// Gateways implements control.GatewayReader.
func (t *Reader) Gateways(ctx context.Context, accountID string, p control.Page) ([]gateway.Gateway, error) {
	return t.SelectGateways(ctx, `INDEXED BY gateways_list WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`,
		accountID, Below(p.After), Limit(p.Limit))
}

// HasGateways implements control.GatewayReader. It reads n entries of an index.
func (t *Reader) HasGateways(ctx context.Context, accountID string, n int) (bool, error) {
	return t.Exists(ctx, "count gateways", `SELECT 1 FROM gateways INDEXED BY gateways_list WHERE account_id = $1 ORDER BY id LIMIT 1 OFFSET $2`, accountID, n-1)
}

// DefaultGateway implements control.GatewayReader.
func (t *Reader) DefaultGateway(ctx context.Context) (*gateway.Gateway, error) {
	return t.SelectGateway(ctx, `WHERE is_default = true`)
}

// InsertGateway implements control.GatewayStore.
func (t *Writer) InsertGateway(ctx context.Context, g *gateway.Gateway) error {
	values, err := gatewayValues(g)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert gateway", `INSERT INTO gateways (name, shares_name, upstream, hostname, host_given,
		global_sustained, global_burst, timeout, cors, max_body_bytes, requests, revision, is_default, default_plan_id, target_count, issuers, version,
		id, account_id, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
		append(values, g.ID, g.AccountID, Micros(g.CreatedAt))...)
}

// UpdateGateway implements control.GatewayStore.
func (t *Writer) UpdateGateway(ctx context.Context, g *gateway.Gateway) error {
	values, err := gatewayValues(g)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update gateway", "gateway", `UPDATE gateways SET name = $1, shares_name = $2, upstream = $3, hostname = $4,
		host_given = $5, global_sustained = $6, global_burst = $7, timeout = $8, cors = $9,
		max_body_bytes = $10, requests = $11, revision = $12, is_default = $13, default_plan_id = $14, target_count = $15, issuers = $16, version = $17 WHERE id = $18 AND account_id = $19`,
		append(values, g.ID, g.AccountID)...)
}

// DeleteGateway implements control.GatewayStore.
func (t *Writer) DeleteGateway(ctx context.Context, accountID, gatewayID string) error {
	own := `(SELECT id FROM gateways WHERE id = $1 AND account_id = $2)`
	if err := t.Queue(ctx, "drop the route table", `UPDATE route_tables SET state = CASE WHEN EXISTS (SELECT 1 FROM ended_gateways WHERE id = route_tables.gateway_id) THEN 3 ELSE 2 END
		WHERE id = (SELECT table_id FROM gateways WHERE id = $1 AND account_id = $2)`, gatewayID, accountID); err != nil {
		return err
	}
	// There may be a million of them, so they are removed later.
	if err := t.Queue(ctx, "give up revisions", `UPDATE revision_counts SET gone = true WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	if err := t.Queue(ctx, "delete repository", `DELETE FROM repositories WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	if err := t.Queue(ctx, "delete canaries", `DELETE FROM canaries WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	if err := t.Queue(ctx, "delete the report of a document", `DELETE FROM validation_reports WHERE gateway_id = `+own, gatewayID, accountID); err != nil {
		return err
	}
	return t.QueueOne(ctx, "delete gateway", "gateway", `DELETE FROM gateways WHERE id = $1 AND account_id = $2`, gatewayID, accountID)
}

// HostnameOwner implements control.GatewayReader.
func (t *Reader) HostnameOwner(ctx context.Context, hostname string) (accountID string, err error) {
	return t.text(ctx, "find a hostname", `SELECT account_id FROM gateways WHERE hostname = $1`, hostname)
}

// GatewayNamed implements control.GatewayReader.
func (t *Reader) GatewayNamed(ctx context.Context, accountID, name, exceptID string) (gatewayID string, err error) {
	return t.text(ctx, "find a gateway by its name", `SELECT id FROM gateways INDEXED BY gateways_names WHERE account_id = $1 AND name = $2 AND id <> $3 ORDER BY id LIMIT 1`, accountID, name, exceptID)
}

// GivenHostnames implements control.GatewayReader.
func (t *Reader) GivenHostnames(ctx context.Context, accountID string) ([]string, error) {
	return t.Texts(ctx, "read given hostnames", `SELECT hostname FROM gateways INDEXED BY gateways_list WHERE account_id = $1 AND host_given = true ORDER BY id`, accountID)
}
