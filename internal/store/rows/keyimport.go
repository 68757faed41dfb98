package rows

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/owner"
)

// Counted selects the keys that exist: all but those of an import in pieces that is not complete.
const Counted = ` AND (import_id IS NULL OR import_id NOT IN (SELECT id FROM key_imports WHERE state < 2))`

const importColumns = `SELECT id, account_id, state, call, (SELECT count(*) FROM key_import_pieces WHERE import_id = key_imports.id) FROM key_imports `

// KeyImports implements control.ImportReader.
func (t *Reader) KeyImports(ctx context.Context, limit int) ([]control.KeyImport, error) {
	return t.keyImports(ctx, `ORDER BY id LIMIT $1`, Limit(limit))
}

func (t *Reader) keyImports(ctx context.Context, rest string, args ...any) (list []control.KeyImport, err error) {
	err = t.Query(ctx, "read imports of keys", importColumns+rest, args, func(r *Row) error {
		var m control.KeyImport
		var state int64
		var call string
		if err := r.Scan(&m.ID, &m.AccountID, &state, &call, &m.Pieces); err != nil {
			return err
		}
		m.State = control.ImportState(state)
		list = append(list, m)
		return json.Unmarshal([]byte(call), &list[len(list)-1].Call)
	})
	return list, err
}

// KeyImport implements control.ImportReader.
func (t *Reader) KeyImport(ctx context.Context, importID string) (*control.KeyImport, error) {
	list, err := t.keyImports(ctx, `WHERE id = $1`, importID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// FirstPiece implements control.ImportReader.
func (t *Reader) FirstPiece(ctx context.Context, importID string) (p *control.ImportPiece, err error) {
	err = t.Query(ctx, "read a piece of an import", `SELECT number, keys, owners FROM key_import_pieces WHERE import_id = $1 ORDER BY number LIMIT 1`, []any{importID}, func(r *Row) error {
		var keys, owners string
		p = &control.ImportPiece{ImportID: importID}
		if err := r.Scan(&p.Number, &keys, &owners); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(keys), &p.KeyIDs); err != nil {
			return err
		}
		return json.Unmarshal([]byte(owners), &p.OwnerIDs)
	})
	return p, err
}

// ImportedKeys implements control.ImportReader.
func (t *Reader) ImportedKeys(ctx context.Context, p *control.ImportPiece) ([]apikey.Key, error) {
	return t.SelectKeys(ctx, `WHERE id = ANY ($1) AND import_id = $2`+Counted, p.KeyIDs, p.ImportID)
}

// StrayKey implements control.ImportReader.
func (t *Reader) StrayKey(ctx context.Context, keyIDs []string) (bool, error) {
	return t.Exists(ctx, "find a key without its gateway, plan or owner", `SELECT 1 FROM keys k WHERE k.id = ANY ($1) AND (
		k.gateway_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.id = k.gateway_id)
		OR k.plan_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM plans p WHERE p.id = k.plan_id)
		OR k.owner_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM owners o WHERE o.id = k.owner_id)) LIMIT 1`, keyIDs)
}

// UnusedOwners implements control.ImportReader.
func (t *Reader) UnusedOwners(ctx context.Context, p *control.ImportPiece) ([]owner.Owner, error) {
	return t.SelectOwners(ctx, `WHERE id = ANY ($1) AND version = 1 AND NOT EXISTS
		(SELECT 1 FROM keys k WHERE k.account_id = owners.account_id AND k.owner = owners.external_id`+Counted+`)`, p.OwnerIDs)
}

// InsertKeyImport implements control.ImportStore.
func (t *Writer) InsertKeyImport(ctx context.Context, m *control.KeyImport) error {
	call, err := json.Marshal(&m.Call)
	if err != nil {
		return fmt.Errorf("encode the call that imports keys: %w", err)
	}
	return t.Queue(ctx, "begin an import of keys", `INSERT INTO key_imports (id, account_id, state, call) VALUES ($1, $2, $3, $4)`, m.ID, m.AccountID, int64(m.State), string(call))
}

// SetImportState implements control.ImportStore.
func (t *Writer) SetImportState(ctx context.Context, importID string, s control.ImportState) error {
	return t.QueueOne(ctx, "go on with an import of keys", "import", `UPDATE key_imports SET state = $1 WHERE id = $2`, int64(s), importID)
}

// InsertPiece implements control.ImportStore.
func (t *Writer) InsertPiece(ctx context.Context, accountID string, p *control.ImportPiece, keys []apikey.Key) error {
	for i := range keys {
		if err := t.insertKey(ctx, &keys[i], p.ImportID); err != nil {
			return err
		}
	}
	ids, err := json.Marshal(p.KeyIDs)
	if err != nil {
		return fmt.Errorf("encode a piece of an import: %w", err)
	}
	owners, err := json.Marshal(p.OwnerIDs)
	if err != nil {
		return fmt.Errorf("encode a piece of an import: %w", err)
	}
	return t.Queue(ctx, "insert a piece of an import", `INSERT INTO key_import_pieces (import_id, number, account_id, keys, owners) VALUES ($1, $2, $3, $4, $5)`,
		p.ImportID, p.Number, accountID, string(ids), string(owners))
}

// DeleteImportedKeys implements control.ImportStore.
func (t *Writer) DeleteImportedKeys(ctx context.Context, p *control.ImportPiece) error {
	return t.Queue(ctx, "delete the keys of an import", `DELETE FROM keys WHERE id = ANY ($1) AND import_id = $2`, p.KeyIDs, p.ImportID)
}

// DeletePiece implements control.ImportStore.
func (t *Writer) DeletePiece(ctx context.Context, p *control.ImportPiece) error {
	return t.Queue(ctx, "delete a piece of an import", `DELETE FROM key_import_pieces WHERE import_id = $1 AND number = $2`, p.ImportID, p.Number)
}

// DeleteKeyImport implements control.ImportStore.
func (t *Writer) DeleteKeyImport(ctx context.Context, importID string) error {
	return t.Queue(ctx, "end an import of keys", `DELETE FROM key_imports WHERE id = $1`, importID)
}
