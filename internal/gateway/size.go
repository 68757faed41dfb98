package gateway

import "strings"

// segmentBytes is how many bytes a segment of a path counts in addition to its text, for its node of the route tree.
const segmentBytes = 16

// RouteBytes is how many bytes routes count towards the bound of an account's configuration: their texts, and
// segmentBytes for each segment of a path.
func RouteBytes(routes []Route) (n int64) {
	for i := range routes {
		r := &routes[i]
		n += int64(len(r.Path) + segmentBytes*strings.Count(r.Path, "/"))
		for _, method := range r.Methods {
			n += int64(len(method)) + 1
		}
	}
	return n
}
