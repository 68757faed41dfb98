package snapshot

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/gateway"
)

// HeaderRules are the compiled gateway.HeaderRules of a gateway or of a route (edge.md, section 2). They are immutable.
type HeaderRules struct {
	// Names are all names that are set or removed, in lower case and with "-" for "_".
	Names []string
	Set   []SetHeader
}

// SetHeader is a header that is set.
type SetHeader struct {
	Name  string
	Parts []gateway.HeaderPart // of the value; at least one

	folded string // Name as in HeaderRules.Names
}

// Edits are the rules that apply to a message: those of the route, and those of the gateway, of which only the ones apply whose names no
// rule of the route has. A pointer is nil without rules.
type Edits struct{ Route, Gateway *HeaderRules }

// Names calls yield with the lists of names that are set or removed.
func (e *Edits) Names(yield func([]string) bool) {
	if e == nil || e.Route != nil && !yield(e.Route.Names) || e.Gateway == nil {
		return
	}
	yield(e.Gateway.Names)
}

// Set calls yield with each header that is set.
func (e *Edits) Set(yield func(*SetHeader) bool) {
	if e == nil {
		return
	}
	var names []string
	if r := e.Route; r != nil {
		for i := range r.Set {
			if !yield(&r.Set[i]) {
				return
			}
		}
		names = r.Names
	}
	if g := e.Gateway; g != nil {
		for i := range g.Set {
			if h := &g.Set[i]; !slices.Contains(names, h.folded) && !yield(h) {
				return
			}
		}
	}
}

// CompileHeaderRules returns the compiled form of rules, which shares no memory with them; nil for nil. A value that is not valid, which
// management does not allow, only removes its header.
func CompileHeaderRules(r *gateway.HeaderRules) *HeaderRules {
	if r.IsEmpty() {
		return nil
	}
	c := &HeaderRules{}
	for _, name := range r.Names() {
		folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		c.Names = append(c.Names, folded)
		parts, err := gateway.ParseHeaderValue(strings.Clone(r.Set[name]))
		if err == nil && len(parts) > 0 {
			c.Set = append(c.Set, SetHeader{Name: strings.Clone(name), Parts: parts, folded: folded})
		}
	}
	return c
}
