package rows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/owner"
)

const ownerColumns = `SELECT id, account_id, external_id, plan_id, suspended, time_zone, anchor_day, created_at, name, metadata, version FROM owners `

// scanOwner returns the owner of a row.
func scanOwner(r *Row) (owner.Owner, error) {
	var (
		o owner.Owner
		c struct { // one allocation
			plan, metadata sql.NullString
			suspended      bool
			created        int64
		}
	)
	if err := r.Scan(&o.ID, &o.AccountID, &o.ExternalID, &c.plan, &c.suspended, &o.TimeZone, &o.AnchorDay, &c.created, &o.Name, &c.metadata, &o.Version); err != nil {
		return o, err
	}
	o.PlanID, o.State, o.CreatedAt = c.plan.String, stateOf(c.suspended), Instant(c.created)
	err := fromJSON(c.metadata, &o.Metadata)
	return o, err
}

func stateOf(suspended bool) owner.State {
	if suspended {
		return owner.Suspended
	}
	return owner.Active
}

// SelectOwners reads the owners that the rest of the query selects.
func (t *Reader) SelectOwners(ctx context.Context, rest string, args ...any) ([]owner.Owner, error) {
	return readAll(ctx, t, "read owners", ownerColumns+rest, args, scanOwner)
}

// SelectOwner reads the only owner that the rest of the query selects.
func (t *Reader) SelectOwner(ctx context.Context, rest string, args ...any) (*owner.Owner, error) {
	return readOne(ctx, t, "owner", ownerColumns+rest, args, scanOwner)
}

// Owner implements control.OwnerReader.
func (t *Reader) Owner(ctx context.Context, accountID, ownerID string) (*owner.Owner, error) {
	return t.SelectOwner(ctx, `WHERE id = $1 AND account_id = $2`, ownerID, accountID)
}

// OwnerByExternalID implements control.OwnerReader.
func (t *Reader) OwnerByExternalID(ctx context.Context, accountID, externalID string) (*owner.Owner, error) {
	return t.SelectOwner(ctx, `WHERE account_id = $1 AND external_id = $2`, accountID, externalID)
}

// OwnersByExternalID implements control.OwnerReader.
func (t *Reader) OwnersByExternalID(ctx context.Context, accountID string, externalIDs []string) ([]owner.Owner, error) {
	return t.SelectOwners(ctx, `WHERE account_id = $1 AND external_id = ANY ($2)`, accountID, externalIDs)
}

// Owners implements control.OwnerReader.
func (t *Reader) Owners(ctx context.Context, accountID string, f control.OwnerFilter, p control.Page) ([]owner.Owner, error) {
	query, args := ownerList(accountID, f, p)
	return t.SelectOwners(ctx, query, args...)
}

// ownerList returns the rest of the query of a list. Each filter has an index with the order of the list. A search for a
// text, and one of several filters together, may read all owners that an index gives (control.OwnerFilter.Searches).
func ownerList(accountID string, f control.OwnerFilter, p control.Page) (string, []any) {
	l := listQuery{from: `INDEXED BY owners_list `}
	l.where(`account_id = `, accountID)
	l.where(`id < `, Below(p.After))
	if f.State != "" {
		l.from = `INDEXED BY owners_state `
		l.where(`suspended = `, f.State == owner.Suspended)
	}
	if f.PlanID != "" {
		l.from = `INDEXED BY owners_plan `
		l.where(`plan_id = `, f.PlanID)
	}
	if f.ExternalID != "" {
		l.from = "" // there is one
		l.where(`external_id = `, f.ExternalID)
	}
	if f.Query != "" {
		l.contains(f.Query, "name", "external_id")
	}
	return l.newest(p.Limit)
}

// OwnerHasActiveKeys implements control.OwnerReader. Few keys whose expiry was told are active: after a clock was set back.
func (t *Reader) OwnerHasActiveKeys(ctx context.Context, accountID, ownerID string, now time.Time) (bool, error) {
	return t.Exists(ctx, "find an active key of an owner", `SELECT 1 FROM (SELECT 1 FROM keys INDEXED BY keys_owner
			WHERE account_id = $1 AND owner = (SELECT external_id FROM owners WHERE id = $2 AND account_id = $1) AND phase = 0
				AND ended = false AND (expires_at IS NULL OR expires_at > $3)`+NotEnded+Counted+` LIMIT 1) AS live
		UNION ALL SELECT 1 FROM (SELECT 1 FROM keys INDEXED BY keys_expiry
			WHERE phase = 1 AND phase < 2 AND expires_at > $3 AND account_id = $1 AND owner = (SELECT external_id FROM owners WHERE id = $2 AND account_id = $1)
				AND ended = false`+NotEnded+Counted+` LIMIT 1) AS told LIMIT 1`, accountID, ownerID, Micros(now))
}

// ownerValues returns the values that InsertOwner and UpdateOwner write, in their order.
func ownerValues(o *owner.Owner) ([]any, error) {
	metadata, err := maybeJSON(o.Metadata, len(o.Metadata) == 0)
	if err != nil {
		return nil, err
	}
	return []any{o.Name, maybeText(o.PlanID), o.State == owner.Suspended, metadata, o.TimeZone, o.AnchorDay, o.Version, o.ID, o.AccountID}, nil
}

// InsertOwner implements control.OwnerStore.
func (t *Writer) InsertOwner(ctx context.Context, o *owner.Owner) error {
	values, err := ownerValues(o)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert owner", `INSERT INTO owners (name, plan_id, suspended, metadata, time_zone, anchor_day, version, id, account_id, external_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, append(values, o.ExternalID, Micros(o.CreatedAt))...)
}

// UpdateOwner implements control.OwnerStore.
func (t *Writer) UpdateOwner(ctx context.Context, o *owner.Owner) error {
	values, err := ownerValues(o)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update owner", "owner", `UPDATE owners SET name = $1, plan_id = $2, suspended = $3, metadata = $4, time_zone = $5, anchor_day = $6, version = $7
		WHERE id = $8 AND account_id = $9`, values...)
}

// DeleteOwner implements control.OwnerStore.
func (t *Writer) DeleteOwner(ctx context.Context, accountID, ownerID string) error {
	return t.QueueOne(ctx, "delete owner", "owner", `DELETE FROM owners WHERE id = $1 AND account_id = $2`, ownerID, accountID)
}
