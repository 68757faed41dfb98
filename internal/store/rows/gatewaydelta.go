package rows

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// gatewayDelta returns a gateway with the given routes, and with the routes that the change log names after an entry.
// ofRecord turns the error of reading a record into the error that gatewayDelta returns.
func (t *Reader) gatewayDelta(ctx context.Context, gatewayID string, routeIDs []string, after int64, ofRecord func(error) error) (*snapshot.GatewayDelta, error) {
	g, err := t.SelectGateway(ctx, `WHERE id = $1`, gatewayID)
	if err != nil {
		return nil, ofRecord(err)
	}
	d := &snapshot.GatewayDelta{Gateway: g, RouteIDs: slices.Clone(routeIDs)}
	if err := t.newerChanges(ctx, d, after); err != nil || d.Whole {
		return d, err
	}
	for _, routeID := range d.RouteIDs {
		r, err := t.Route(ctx, gatewayID, routeID)
		if fault.CodeOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, ofRecord(err)
		}
		d.Routes = append(d.Routes, *r)
	}
	return d, nil
}

// newerChanges adds to d the changes of its gateway that the change log has after an entry.
func (t *Reader) newerChanges(ctx context.Context, d *snapshot.GatewayDelta, after int64) error {
	trimmed, _, err := t.ChangeBounds(ctx)
	if err != nil {
		return err
	}
	d.Whole = after < trimmed
	known := map[string]bool{}
	for _, routeID := range d.RouteIDs {
		known[routeID] = true
	}
	return t.Query(ctx, "read changes", `SELECT seq, kind, record_id FROM changes WHERE seq > $1 ORDER BY seq`, []any{after}, func(r *Row) error {
		var c snapshot.Change
		if err := r.Scan(&c.Seq, &c.Kind, &c.ID); err != nil {
			return err
		}
		gatewayID, routeID := c.Gateway()
		switch {
		case gatewayID != d.Gateway.ID:
		case c.Kind == snapshot.GatewayChange:
			d.Whole = true
		case routeID != "" && !known[routeID]:
			known[routeID] = true
			d.RouteIDs = append(d.RouteIDs, routeID)
		}
		return nil
	})
}

// Changes implements control.ChangeLogReader. If seq is beyond the newest entry, as after a
// backup was restored, complete is false too.
func (t *Reader) Changes(ctx context.Context, seq int64, limit int) (list []snapshot.Change, complete bool, err error) {
	first, last, err := t.ChangeBounds(ctx)
	if err != nil || seq < first || seq > last {
		return nil, false, err
	}
	err = t.Query(ctx, "read changes", `SELECT seq, kind, record_id FROM changes WHERE seq > $1 ORDER BY seq LIMIT $2`,
		[]any{seq, Limit(limit)}, func(r *Row) error {
			var c snapshot.Change
			err := r.Scan(&c.Seq, &c.Kind, &c.ID)
			list = append(list, c)
			return err
		})
	return list, err == nil, err
}
