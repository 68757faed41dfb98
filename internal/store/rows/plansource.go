package rows

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// EachPlan implements snapshot.PlanSource. f must not wait for another reading call of the store.
func (s *Store) EachPlan(ctx context.Context, f func(*plan.Plan) error) error {
	err := s.engine.Read(ctx, ChangedStreams, func(t *Reader) error {
		return t.StreamPlans(ctx, "", nil, f, func(_ string, err error) error { return Decoded(err) })
	})
	return s.engine.OfRecord(err)
}

// EachOwner implements snapshot.PlanSource. All calls of f get the same Owner. f must not wait for another reading call
// of the store.
func (s *Store) EachOwner(ctx context.Context, f func(*owner.Owner) error) error {
	err := s.engine.Read(ctx, ChangedStreams, func(t *Reader) error { return t.StreamOwners(ctx, "", nil, f) })
	return s.engine.OfRecord(err)
}

// PlanByID implements snapshot.PlanSource.
func (s *Store) PlanByID(ctx context.Context, planID string) (*plan.Plan, error) {
	p, err := read(ctx, s, Changed, func(t *Reader) (*plan.Plan, error) { return t.SelectPlan(ctx, `WHERE id = $1`, planID) })
	return p, s.engine.OfRecord(err)
}

// OwnerByID implements snapshot.PlanSource.
func (s *Store) OwnerByID(ctx context.Context, ownerID string) (*owner.Owner, error) {
	o, err := read(ctx, s, Changed, func(t *Reader) (*owner.Owner, error) { return t.SelectOwner(ctx, `WHERE id = $1`, ownerID) })
	return o, s.engine.OfRecord(err)
}

// StreamPlans calls f for each plan that the rest of the query selects, and bad for one that cannot be decoded. It stops
// at the first error of either, and returns it.
func (t *Reader) StreamPlans(ctx context.Context, rest string, args []any, f func(*plan.Plan) error, bad func(planID string, err error) error) error {
	return t.stream(ctx, "stream plans", planColumns+rest, args, func(r *Row) (failed, err error) {
		p, limits, err := planOf(r)
		if err != nil {
			return nil, Decoded(err)
		}
		if err := decodeLimits(&p, limits); err != nil {
			return bad(p.ID, err), nil
		}
		return f(&p), nil
	})
}

const ownerStream = `SELECT id, account_id, external_id, plan_id, suspended, time_zone, anchor_day, created_at FROM owners `

// StreamOwners calls f for each owner that the rest of the query selects, with what the data plane needs. It stops at
// the first error of f and returns it. All calls of f get the same Owner.
func (t *Reader) StreamOwners(ctx context.Context, rest string, args []any, f func(*owner.Owner) error) error {
	var (
		d         KeyDecoder // for its shared strings
		o         owner.Owner
		planID    sql.NullString
		suspended bool
		created   int64
		columns   = []any{&o.ID, &o.AccountID, &o.ExternalID, &planID, &suspended, &o.TimeZone, &o.AnchorDay, &created}
	)
	return t.stream(ctx, "stream owners", ownerStream+rest, args, func(r *Row) (failed, err error) {
		if err := r.Result.Scan(columns...); err != nil {
			return nil, Decoded(err)
		}
		o.AccountID, o.PlanID, o.TimeZone = d.share(o.AccountID), d.share(planID.String), d.share(o.TimeZone)
		o.State, o.CreatedAt = stateOf(suspended), Instant(created)
		return f(&o), nil
	})
}

// checkEvery is the number of rows after which a stream checks its context.
const checkEvery = 1024

// stream calls f for each row. failed is an error of f's caller, which ends the stream and says nothing of the database.
func (t *Reader) stream(ctx context.Context, what, query string, args []any, f func(*Row) (failed, err error)) (failed error) {
	n := 0
	err := t.Query(ctx, what, query, args, func(r *Row) (err error) {
		if n++; n%checkEvery == 0 && ctx.Err() != nil {
			failed = ctx.Err()
			return failed
		}
		failed, err = f(r)
		if failed != nil {
			return failed
		}
		return err
	})
	if failed != nil {
		return failed
	}
	return err
}
