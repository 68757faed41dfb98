package rows

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// The states of a route table.
const (
	tableEnded   = 3 // of a deleted gateway whose routes are not all in the audit log
	tableStaged  = 0 // being written, for a push that has not been committed
	tableCurrent = 1
	tableDropped = 2 // its pages are being removed
)

// stageBytes is about the size of the transactions in which a large push is written, so that no other
// change waits for more than one of them. A smaller push is written in one transaction.
const stageBytes = 128 << 10

// revisionBytes is how many bytes a revision counts in addition to its parts: for its row, and for entries of indexes.
const revisionBytes = 512

// The kinds of parts of a revision.
const (
	contentPart = 0 // of the packed document
	routesPart  = 1 // a page of the routes, in the document's order
)

// RevisionPart is a piece of a revision.
type RevisionPart struct {
	Kind, N int
	Content []byte
}

// Prepared is an encoded revision with its route table. It is the control.Prepared of both engines.
type Prepared struct {
	Revision   gateway.Revision // without Content and Routes
	Routes     int
	RouteBytes int64 // gateway.RouteBytes
	Pages      []RoutePage
	Parts      []RevisionPart
	Bytes      int64 // of the revision: its row and parts
	Table      int64 // the staged table; 0 if Pages and Parts are not stored yet
}

// Prepare encodes a revision.
func (c *PageCodec) Prepare(r *gateway.Revision) (*Prepared, error) {
	p := &Prepared{Revision: *r, Routes: len(r.Routes), RouteBytes: gateway.RouteBytes(r.Routes)}
	p.Revision.Content, p.Revision.Routes = nil, nil
	content, err := pack(r.Content)
	if err != nil {
		return nil, fmt.Errorf("pack content: %w", err)
	}
	for part := range slices.Chunk(content, stageBytes) {
		p.Parts = append(p.Parts, RevisionPart{contentPart, len(p.Parts), part})
	}
	for i, page := range c.Pages(r.Routes) {
		p.Parts = append(p.Parts, RevisionPart{routesPart, i, page.Content})
	}
	p.Bytes = revisionBytes
	for i := range p.Parts {
		p.Bytes += int64(len(p.Parts[i].Content))
	}
	sorted := r.Routes
	if !slices.IsSortedFunc(sorted, compareRoutes) {
		sorted = slices.SortedFunc(slices.Values(sorted), compareRoutes)
	}
	p.Pages = c.Pages(sorted)
	return p, nil
}

func compareRoutes(a, b gateway.Route) int { return strings.Compare(a.ID, b.ID) }

// Size returns the number of bytes to store.
func (p *Prepared) Size() (n int) {
	for i := range p.Pages {
		n += len(p.Pages[i].Content)
	}
	for i := range p.Parts {
		n += len(p.Parts[i].Content)
	}
	return n
}
