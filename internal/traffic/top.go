package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Order is the number by which Top orders.
type Order string

// The orders.
const (
	ByRequests Order = "requests"
	ByErrors   Order = "errors"  // responses with a 5xx status
	ByRefused  Order = "refused" // responses with the status 401, 403 or 429
	ByBytesOut Order = "bytes_out"
)

// Total is the sum of a group over the whole time of a query. It has no latencies.
type Total struct {
	Row
	GatewayID string // of a route or of a gateway; "" for requests without a route or gateway, and for other groups
}

// maxGroups is the maximum number of groups that Top adds up: some 50 MB.
const maxGroups = 250_000

// Top adds up the counts of each group of q over its whole time, and returns the limit groups with the
// greatest numbers of the given order, the greatest first. Groups without any are left out; Start of the
// rows is the start of the first interval, and there are no latencies. The errors are the same as from
// Report, and fault.ValidationFailed with the field since if there are more than 250,000 groups.
func Top(ctx context.Context, store ChunkReader, accountID string, q Query, by Order, limit int, now time.Time) ([]Total, error) {
	p, err := newQuery(accountID, q, now)
	if err != nil || p.nothing {
		return nil, err
	}
	totals, told := map[group]*total{}, amounts{}
	err = store.ReadTraffic(ctx, p.chunks, func(c *Chunk) error {
		err := rows(c.Part, c.Body, func(e *row) error {
			if !p.passes(e) {
				return nil
			}
			g := p.group(e)
			t := totals[g]
			if t == nil {
				if len(totals) == maxGroups {
					return fault.Invalid("since", "there are more than %d groups with requests in that time: use a later time, or only one gateway", maxGroups)
				}
				t = &total{gateway: e.Gateway}
				totals[g] = t
			}
			t.add(e.Status, &e.Counts)
			return told.add(&t.Meters, e.Amounts)
		})
		if err != nil && fault.CodeOf(err) != fault.ValidationFailed {
			return fmt.Errorf("read traffic chunk %d: %w", c.Seq, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p.greatest(totals, by, limit), nil
}

type total struct {
	Row
	gateway [16]byte
}

// greatest returns the greatest rows in order. Equal rows are ordered by group.
func (p *query) greatest(totals map[group]*total, by Order, limit int) []Total {
	groups := make([]group, 0, len(totals))
	for g, r := range totals {
		if by.of(&r.Row) > 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(by.of(&totals[b].Row), by.of(&totals[a].Row)), p.compare(a, b))
	})
	groups = groups[:min(limit, len(groups))]
	r := &report{query: p}
	out := make([]Total, len(groups))
	for i, g := range groups {
		out[i].Row = totals[g].Row
		out[i].Meters.sort()
		out[i].Start = time.Unix(p.chunks.From, 0).UTC()
		out[i].Group, out[i].IssuerID = r.name(g)
		if gateway := totals[g].gateway; (p.Group == ByGateway || p.Group == ByRoute) && gateway != ([16]byte{}) {
			out[i].GatewayID = id.Format(id.Gateway, gateway)
		}
	}
	return out
}

// of returns the number of a row that o orders by.
func (o Order) of(r *Row) int64 {
	switch o {
	case ByErrors:
		return r.Status[3]
	case ByRefused:
		return r.Limited + r.Unauthorized + r.Forbidden
	case ByBytesOut:
		return r.BytesOut
	default:
		return r.Requests
	}
}
