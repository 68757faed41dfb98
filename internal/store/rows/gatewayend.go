package rows

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// NotEnded selects keys that are not restricted to a gateway that has ended.
const NotEnded = ` AND (gateway_id IS NULL OR gateway_id NOT IN (SELECT id FROM ended_gateways))`

const endedColumns = `SELECT id, account_id, after, at, call FROM ended_gateways `

func (t *Reader) endedGateways(ctx context.Context, rest string, args ...any) (list []control.EndedGateway, err error) {
	err = t.Query(ctx, "read deleted gateways", endedColumns+rest, args, func(r *Row) error {
		var e control.EndedGateway
		var at int64
		var call string
		if err := r.Scan(&e.ID, &e.AccountID, &e.RoutesTo, &at, &call); err != nil {
			return err
		}
		e.At = Instant(at)
		list = append(list, e)
		return json.Unmarshal([]byte(call), &list[len(list)-1].Call)
	})
	return list, err
}

// EndedGateways implements control.GatewayReader.
func (t *Reader) EndedGateways(ctx context.Context, limit int) ([]control.EndedGateway, error) {
	return t.endedGateways(ctx, `ORDER BY id LIMIT $1`, Limit(limit))
}

// EndedGateway implements control.GatewayReader.
func (t *Reader) EndedGateway(ctx context.Context, gatewayID string) (*control.EndedGateway, error) {
	list, err := t.endedGateways(ctx, `WHERE id = $1`, gatewayID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// EndGateway implements control.GatewayStore.
func (t *Writer) EndGateway(ctx context.Context, e *control.EndedGateway) error {
	call, err := json.Marshal(&e.Call)
	if err != nil {
		return fmt.Errorf("encode the call that deletes gateway %s: %w", e.ID, err)
	}
	v, err := t.read.tableOf(ctx, e.ID)
	if err != nil {
		return err
	}
	t.read.ending, t.read.endingTable = e.ID, v.Table
	return t.QueueOne(ctx, "end gateway", "gateway", `INSERT INTO ended_gateways (id, account_id, table_id, after, at, call)
		SELECT id, account_id, table_id, $1, $2, $3 FROM gateways WHERE id = $4 AND account_id = $5`, e.RoutesTo, Micros(e.At), string(call), e.ID, e.AccountID)
}

// UpdateEndedGateway implements control.GatewayStore.
func (t *Writer) UpdateEndedGateway(ctx context.Context, e *control.EndedGateway) error {
	return t.QueueOne(ctx, "go on with a deleted gateway", "gateway", `UPDATE ended_gateways SET after = $1 WHERE id = $2`, e.RoutesTo, e.ID)
}

// FinishGateway implements control.GatewayStore.
func (t *Writer) FinishGateway(ctx context.Context, gatewayID string) error {
	if err := t.Queue(ctx, "drop the route table", `UPDATE route_tables SET state = $1 WHERE state = $2 AND id = (SELECT table_id FROM ended_gateways WHERE id = $3)`,
		tableDropped, tableEnded, gatewayID); err != nil {
		return err
	}
	return t.Queue(ctx, "finish a deleted gateway", `DELETE FROM ended_gateways WHERE id = $1`, gatewayID)
}

// KeysToRevoke implements control.KeyReader.
func (t *Reader) KeysToRevoke(ctx context.Context, gatewayID string, limit int) ([]apikey.Key, error) {
	return t.keysOf(ctx, StoredKeyColumns, `INDEXED BY keys_gateway WHERE gateway_id = $1 AND phase IN (0, 1)`+Counted+` ORDER BY phase, id LIMIT $2`, gatewayID, Limit(limit))
}

// EndedRoutes implements control.RouteReader. It reads the page with the route that the caller has reached, and the
// pages behind it.
func (t *Reader) EndedRoutes(ctx context.Context, e *control.EndedGateway, limit int) (list []gateway.Route, err error) {
	of, table := `SELECT content FROM route_pages WHERE table_id = (SELECT table_id FROM ended_gateways WHERE id = $1)`, any(e.ID)
	if t.ending == e.ID { // the row of ended_gateways may not be written yet
		of, table = `SELECT content FROM route_pages WHERE table_id = $1`, t.endingTable
	}
	page, err := t.pagesOf(ctx, e.ID, of+` AND first <= $2 ORDER BY first DESC LIMIT 1`, table, e.RoutesTo)
	for after := e.RoutesTo; err == nil && len(list) < limit; {
		for i := range page {
			if page[i].ID > e.RoutesTo && len(list) < limit {
				list = append(list, page[i])
			}
			after = max(after, page[i].ID)
		}
		if page, err = t.pagesOf(ctx, e.ID, of+` AND first > $2 ORDER BY first LIMIT 1`, table, after); len(page) == 0 {
			break
		}
	}
	return list, err
}
