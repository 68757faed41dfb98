package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"

	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/stored"
)

// liveGateway is the identifier of a gateway if that exists: the revisions of a deleted one may still be
// there.
const liveGateway = `(SELECT id FROM gateways WHERE id = ?)`

const revisionColumns = `SELECT id, gateway_id, number, source, kind, author, commit_id, created_at, added, removed, changed`

const revisionPage = revisionColumns + ` FROM revisions WHERE gateway_id = ` + liveGateway + ` AND number < ? ORDER BY number DESC LIMIT ?+0`

func scanRevision(r *sql.Rows, more ...any) (gateway.Revision, error) {
	var (
		rev     gateway.Revision
		created int64
	)
	err := r.Scan(append([]any{&rev.ID, &rev.GatewayID, &rev.Number, &rev.Source, &rev.Kind, &rev.Author, &rev.Commit,
		&created, &rev.Added, &rev.Removed, &rev.Changed}, more...)...)
	rev.CreatedAt = instant(created)
	return rev, err
}

// Revision implements control.RevisionReader.
func (t *readTx) Revision(ctx context.Context, gatewayID string, number int64) (*gateway.Revision, error) {
	var (
		rev             gateway.Revision
		content, routes []byte
	)
	err := t.row(ctx, "revision", revisionColumns+`, content, routes FROM revisions WHERE gateway_id = `+liveGateway+` AND number = ?`,
		[]any{gatewayID, number}, func(r *sql.Rows) (err error) {
			rev, err = scanRevision(r, &content, &routes)
			return err
		})
	if err != nil {
		return nil, err
	}
	if len(content) == 0 { // in parts
		return &rev, t.readParts(ctx, &rev)
	}
	if rev.Content, err = stored.Unpack(content); err != nil {
		return nil, fmt.Errorf("content of revision %d of %s: %w", number, gatewayID, err)
	}
	if rev.Routes, err = decodeRoutes(routes); err != nil {
		return nil, fmt.Errorf("routes of revision %d of %s: %w", number, gatewayID, err)
	}
	return &rev, nil
}

// readParts reads the content and routes of a revision.
func (t *readTx) readParts(ctx context.Context, rev *gateway.Revision) error {
	var content []byte
	err := t.rows(ctx, "read a revision", `SELECT kind, content FROM revision_parts WHERE revision_id = ? ORDER BY kind, n`, []any{rev.ID}, func(r *sql.Rows) error {
		var kind int
		var part sql.RawBytes
		if err := r.Scan(&kind, &part); err != nil {
			return err
		}
		if kind == stored.ContentPart {
			content = append(content, part...)
			return nil
		}
		var err error
		rev.Routes, err = t.c.pages.Routes(rev.Routes, rev.GatewayID, part)
		return err
	})
	if err != nil {
		return err
	}
	if rev.Content, err = stored.Unpack(content); err != nil {
		return fmt.Errorf("content of revision %d of %s: %w", rev.Number, rev.GatewayID, err)
	}
	return nil
}

// Revisions implements control.RevisionReader.
func (t *readTx) Revisions(ctx context.Context, gatewayID string, limit int, before int64) ([]gateway.Revision, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	var list []gateway.Revision
	err := t.rows(ctx, "read revisions", revisionPage,
		[]any{gatewayID, before, rowLimit(limit)}, func(r *sql.Rows) error {
			rev, err := scanRevision(r)
			list = append(list, rev)
			return err
		})
	return list, err
}

// InsertRevision implements control.RevisionStore.
func (t *tx) InsertRevision(ctx context.Context, r *gateway.Revision) error {
	p, err := t.c.pages.Prepare(r)
	if err != nil {
		return err
	}
	return t.insertRevision(ctx, p)
}

// insertRevision adds a revision, and its parts unless they are stored already.
func (t *tx) insertRevision(ctx context.Context, p *stored.Prepared) error {
	r := &p.Revision
	_, err := t.exec(ctx, "insert revision", `INSERT INTO revisions (id, gateway_id, number, source, kind, author, commit_id,
		created_at, added, removed, changed, bytes, content, routes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'', x'')`,
		r.ID, r.GatewayID, r.Number, string(r.Source), string(r.Kind), r.Author, r.Commit,
		micros(r.CreatedAt), r.Added, r.Removed, r.Changed, p.Bytes)
	if err != nil {
		return err
	}
	return t.insertParts(ctx, r.ID, p.Parts)
}

// storedRoute is the stored form of a route in a revision of a database that an earlier version wrote. Do
// not change its JSON names.
type storedRoute struct {
	ID         string         `json:"id"`
	GatewayID  string         `json:"gateway_id"`
	Path       string         `json:"path"`
	Methods    []string       `json:"methods"`
	Sustained  ratelimit.Rate `json:"sustained,omitzero"`
	Burst      ratelimit.Rate `json:"burst,omitzero"`
	Daily      ratelimit.Rate `json:"daily,omitzero"`
	Per        string         `json:"per,omitempty"`
	LimitByAPI bool           `json:"limit_by_api,omitempty"`
	Auth       gateway.Auth   `json:"auth"`
	Source     gateway.Source `json:"source"`
	CreatedAt  *int64         `json:"created_at"` // microseconds
	Version    int64          `json:"version"`
}

func decodeRoutes(packed []byte) ([]gateway.Route, error) {
	b, err := stored.Unpack(packed)
	if err != nil {
		return nil, err
	}
	var old []storedRoute
	if err := json.Unmarshal(b, &old); err != nil {
		return nil, err
	}
	routes := make([]gateway.Route, len(old))
	for i := range old {
		s := &old[i]
		routes[i] = gateway.Route{
			ID: s.ID, GatewayID: s.GatewayID, Path: s.Path, Methods: s.Methods,
			RateLimit:  ratelimit.Config{Sustained: s.Sustained, Burst: s.Burst, Daily: s.Daily, Per: s.Per},
			LimitByAPI: s.LimitByAPI, Auth: s.Auth, Source: s.Source, Version: s.Version,
		}
		if s.CreatedAt != nil {
			routes[i].CreatedAt = instant(*s.CreatedAt)
		}
	}
	return routes, nil
}
