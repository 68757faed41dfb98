package postgres

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/store/rows"
)

// Delete implements Statements. A mutation must hold the head to know how many rows it has deleted, so Delete first
// checks whether there are any.
func (t *tx) Delete(ctx context.Context, what, query string, args ...any) (int64, error) {
	if found, err := t.MayDelete(ctx, what, query, args...); err != nil || !found {
		return 0, err
	}
	return t.Exec(ctx, what, query, args...)
}

// MayDelete implements rows.Statements. If the transaction can delete at once, without a check, it returns true.
func (t *tx) MayDelete(ctx context.Context, what, query string, args ...any) (found bool, err error) {
	if !t.ahead {
		return true, nil
	}
	look, _, _ := strings.Cut(strings.Replace(query, "DELETE FROM", "SELECT FROM", 1), " RETURNING ")
	err = t.QueryRow(ctx, what, `SELECT EXISTS (`+look+`)`, args, func(r *rows.Row) error { return r.Scan(&found) })
	return found, err
}
