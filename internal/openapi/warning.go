package openapi

import (
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

const (
	// maxWarnings is the maximum number of different warnings for a document. Further ones are
	// counted.
	maxWarnings = 50
	// maxPositions is the number of positions that a warning names.
	maxPositions = 3
)

// warning is something about a document that its author may not expect, with its positions.
type warning struct {
	message   string
	positions []position // the first of them
	count     int
}

type position struct {
	line  int32
	field string
}

// warn adds a warning about the field at p. Warnings with the same message are folded into one.
func (r *reader) warn(p document.Position, field, format string, args ...any) {
	r.warnAt(position{p.Line, document.Short(field)}, fmt.Sprintf(format, args...))
}

func (r *reader) warnAt(at position, message string) {
	w := r.warned[message]
	if w == nil {
		if len(r.doc.warnings) == maxWarnings {
			r.doc.unshown++
			return
		}
		w = &warning{message: message}
		r.warned[message] = w
		r.doc.warnings = append(r.doc.warnings, w)
	}
	if w.count++; len(w.positions) < maxPositions {
		w.positions = append(w.positions, at)
	}
}

func (w *warning) String() string {
	first := w.positions[0]
	text := fmt.Sprintf("line %d: %s %s", first.line, first.field, w.message)
	if w.count == 1 {
		return text
	}
	next := make([]string, 0, maxPositions)
	for _, p := range w.positions[1:] {
		next = append(next, fmt.Sprintf("line %d: %s", p.line, p.field))
	}
	if w.count > len(w.positions) {
		next = append(next, "…")
	}
	return fmt.Sprintf("%s (%d of these; next %s)", text, w.count, strings.Join(next, ", "))
}

// Warnings returns the warnings for the author of a document that is pushed to a gateway with
// this upstream URL.
func (d *Document) Warnings(upstreamURL string) []string {
	var all []string
	up, err := gateway.ParseUpstreamURL(upstreamURL)
	if err == nil && d.BasePath != "" && strings.HasSuffix(normal(strings.TrimRight(up.Path, "/")), normal(d.BasePath)) {
		all = append(all, fmt.Sprintf("upstream_url ends with %s, and so does the URL of the document's first server, whose path is prepended to every route: requests will go to %s%s/…; remove the path from upstream_url unless you mean this",
			d.BasePath, strings.TrimRight(up.Path, "/"), d.BasePath))
	}
	for _, w := range d.warnings {
		all = append(all, w.String())
	}
	if d.unshown > 0 {
		all = append(all, fmt.Sprintf("and %d more warnings", d.unshown))
	}
	return all
}

func normal(path string) string { return gateway.NormalizePath(nil, path) }
