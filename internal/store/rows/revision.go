package rows

import (
	"context"
	"fmt"
	"math"

	"github.com/keygate/keygate/internal/gateway"
)

// liveGateway is the identifier of a gateway if the gateway exists: revisions of a deleted gateway may
// still be there.
const liveGateway = `(SELECT id FROM gateways WHERE id = $1)`

const revisionColumns = `SELECT id, gateway_id, number, source, kind, author, commit_id, created_at, added, removed, changed`

const revisionPage = revisionColumns + ` FROM revisions WHERE gateway_id = ` + liveGateway + ` AND number < $2 ORDER BY number DESC LIMIT $3`

func scanRevision(r *Row) (gateway.Revision, error) {
	var (
		rev     gateway.Revision
		created int64
	)
	err := r.Scan(&rev.ID, &rev.GatewayID, &rev.Number, &rev.Source, &rev.Kind, &rev.Author, &rev.Commit,
		&created, &rev.Added, &rev.Removed, &rev.Changed)
	rev.CreatedAt = Instant(created)
	return rev, err
}

// Revision implements control.RevisionReader.
func (t *Reader) Revision(ctx context.Context, gatewayID string, number int64) (*gateway.Revision, error) {
	rev, err := readOne(ctx, t, "revision", revisionColumns+` FROM revisions WHERE gateway_id = `+liveGateway+` AND number = $2`, []any{gatewayID, number}, scanRevision)
	if err != nil {
		return nil, err
	}
	return rev, t.readParts(ctx, rev)
}

// readParts reads the content and routes of a revision.
func (t *Reader) readParts(ctx context.Context, rev *gateway.Revision) error {
	var content []byte
	costs := Costs{}
	err := t.Query(ctx, "read a revision", `SELECT kind, content FROM revision_parts WHERE revision_id = $1 ORDER BY kind, n`, []any{rev.ID}, func(r *Row) error {
		var kind int
		var part borrowed
		if err := r.Scan(&kind, &part); err != nil {
			return err
		}
		if kind == contentPart {
			content = append(content, part...)
			return nil
		}
		var err error
		rev.Routes, err = t.Pages.Routes(rev.Routes, rev.GatewayID, part, costs)
		return err
	})
	if err != nil {
		return err
	}
	if rev.Content, err = unpack(content); err != nil {
		return fmt.Errorf("content of revision %d of %s: %w", rev.Number, rev.GatewayID, err)
	}
	return nil
}

// Revisions implements control.RevisionReader.
func (t *Reader) Revisions(ctx context.Context, gatewayID string, limit int, before int64) ([]gateway.Revision, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return readAll(ctx, t, "read revisions", revisionPage, []any{gatewayID, before, Limit(limit)}, scanRevision)
}

// InsertRevision implements control.RevisionStore.
func (t *Writer) InsertRevision(ctx context.Context, r *gateway.Revision) error {
	p, err := t.read.Pages.Prepare(r)
	if err != nil {
		return err
	}
	return t.insertRevision(ctx, p)
}

// insertRevision adds a revision, and its parts unless they are stored already.
func (t *Writer) insertRevision(ctx context.Context, p *Prepared) error {
	r := &p.Revision
	err := t.Queue(ctx, "insert revision", `INSERT INTO revisions (id, gateway_id, number, source, kind, author, commit_id,
		created_at, added, removed, changed, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		r.ID, r.GatewayID, r.Number, string(r.Source), string(r.Kind), r.Author, r.Commit,
		Micros(r.CreatedAt), r.Added, r.Removed, r.Changed, p.Bytes)
	if err != nil {
		return err
	}
	return t.insertParts(ctx, r.ID, p.Parts)
}
