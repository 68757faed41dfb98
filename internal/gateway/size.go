package gateway

import (
	"strings"

	"github.com/keygate/keygate/internal/cost"
)

// segmentBytes is how many bytes a segment of a path counts in addition to its text, for its node of the route tree.
const segmentBytes = 16

// What a header that a Handling names, and a network of its lists, count in addition to their text, for their compiled forms.
const (
	headerNameBytes = 128
	networkBytes    = 32
)

// RouteBytes is how many bytes routes count towards the bound of an account's configuration: their texts, and
// segmentBytes for each segment of a path. A cost, a split and a Handling count for each route that has them: a table is changed in
// parts, and no part knows which of them are in the others.
func RouteBytes(routes []Route) (n int64) {
	sizes := map[*cost.Rule]int64{} // of costs that routes share
	splits := map[*SplitEntry]int64{}
	handlings := map[*Handling]int64{}
	for i := range routes {
		r := &routes[i]
		n += int64(len(r.Path) + len(r.Upstream) + segmentBytes*strings.Count(r.Path, "/"))
		if len(r.Cost) > 0 {
			size, known := sizes[&r.Cost[0]]
			if !known {
				size = int64(len(r.Cost.AppendJSON(nil)))
				sizes[&r.Cost[0]] = size
			}
			n += size
		}
		if len(r.Split) > 0 {
			size, known := splits[&r.Split[0]]
			if !known {
				size = splitBytes(r.Split)
				splits[&r.Split[0]] = size
			}
			n += size
		}
		if r.Handling != nil {
			size, known := handlings[r.Handling]
			if !known {
				size = r.Handling.bytes()
				handlings[r.Handling] = size
			}
			n += size
		}
		for _, method := range r.Methods {
			n += int64(len(method)) + 1
		}
	}
	return n
}

// bytes is how many bytes h counts: those of its JSON, which are a few for a short header or network, and their compiled forms.
func (h *Handling) bytes() int64 {
	n := len(h.AppendJSON(nil)) + networkBytes*(len(h.AllowIPs)+len(h.DenyIPs))
	for _, rules := range [...]*HeaderRules{h.RequestHeaders, h.ResponseHeaders} {
		if rules != nil {
			n += headerNameBytes * (len(rules.Set) + len(rules.Remove))
		}
	}
	if h.Respond != nil {
		n += headerNameBytes * len(h.Respond.Headers)
	}
	return int64(n)
}
