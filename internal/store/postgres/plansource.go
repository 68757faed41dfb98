package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// EachReadablePlan implements snapshot.PositionLog. One statement reads all plans; only if the server cannot read one of
// them, it reads them by their identifiers.
func (db *DB) EachReadablePlan(ctx context.Context, f func(*plan.Plan) error, bad func(planID string, err error)) error {
	undecodable := func(planID string, err error) error {
		bad(planID, &corrupted{err})
		return nil
	}
	return db.eachReadable(ctx, `SELECT id FROM plans WHERE id > $1 ORDER BY id LIMIT 1000`, bad, func(t *readTx, rest string, args []any) error {
		return t.StreamPlans(ctx, rest, args, f, undecodable)
	})
}

// EachReadableOwner implements snapshot.PositionLog, as EachReadablePlan does.
func (db *DB) EachReadableOwner(ctx context.Context, f func(*owner.Owner) error, bad func(ownerID string, err error)) error {
	return db.eachReadable(ctx, `SELECT id FROM owners WHERE id > $1 ORDER BY id LIMIT 1000`, bad, func(t *readTx, rest string, args []any) error {
		return t.StreamOwners(ctx, rest, args, f)
	})
}

// eachReadable reads the records of a table with stream, which gets the end of its query. If the server cannot read one,
// it pages through the identifiers, which next selects, and reads the records of a page together, or in halves.
func (db *DB) eachReadable(ctx context.Context, next string, bad func(id string, err error), stream func(t *readTx, rest string, args []any) error) error {
	read := func(rest string, args ...any) error {
		return db.stream(ctx, db.changes, func(t *readTx) error { return stream(t, rest, args) })
	}
	err := read("")
	if err == nil || !isDamage(err) {
		return err
	}
	for after := ""; ; {
		ids, err := readOn(ctx, db, db.changes, func(t *readTx) ([]string, error) { return t.Texts(ctx, "read identifiers", next, after) })
		if err != nil || len(ids) == 0 {
			return err
		}
		err = inHalves(ids, func(some []string) error { return read(`WHERE id = ANY ($1)`, some) }, bad)
		if err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// EachReadableIssuer implements snapshot.PositionLog, as EachReadablePlan does.
func (db *DB) EachReadableIssuer(ctx context.Context, f func(*issuer.Issuer) error, bad func(issuerID string, err error)) error {
	undecodable := func(issuerID string, err error) error {
		bad(issuerID, &corrupted{err})
		return nil
	}
	return db.eachReadable(ctx, `SELECT id FROM issuers WHERE id > $1 ORDER BY id LIMIT 1000`, bad, func(t *readTx, rest string, args []any) error {
		return t.StreamIssuers(ctx, rest, args, f, undecodable)
	})
}
