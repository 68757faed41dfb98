package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NearRoute is a route that comes near to a request for which there is none, and why it does not match.
type NearRoute struct {
	Path    string
	Methods []string
	Why     string // completes the sentence "the route … does not match: "
}

// Nearness finds the routes that come nearest to a request.
type Nearness struct {
	method   string
	segments []string
	seen     map[string]bool
	found    []nearRoute
}

// nearRoute is a route that comes near; a lower rank comes nearer.
type nearRoute struct {
	NearRoute
	rank int
}

// NewNearness returns the Nearness of a request. path is in the normal form of NormalizePath.
func NewNearness(method, path string) *Nearness {
	return &Nearness{method: method, segments: segmentsOf(path), seen: map[string]bool{}}
}

// Look compares a route with the request. A route may be given several times.
func (n *Nearness) Look(path string, methods []string) {
	key := path + " " + strings.Join(methods, " ")
	if n.seen[key] {
		return
	}
	n.seen[key] = true
	if rank, why := n.why(path, methods); why != "" {
		n.found = append(n.found, nearRoute{NearRoute{path, methods, why}, rank})
	}
}

// Nearest returns at most so many routes, the nearest first.
func (n *Nearness) Nearest(most int) []NearRoute {
	slices.SortFunc(n.found, func(a, b nearRoute) int { return cmp.Or(a.rank-b.rank, strings.Compare(a.Path, b.Path)) })
	list := make([]NearRoute, min(len(n.found), most))
	for i := range list {
		list[i] = n.found[i].NearRoute
	}
	return list
}

// why says why the route does not match; "" if it does not come near.
func (n *Nearness) why(path string, methods []string) (rank int, why string) {
	own := segmentsOf(path)
	same, folded, other := 0, 0, -1
	for i := range min(len(own), len(n.segments)) {
		switch {
		case segmentMatches(own[i], n.segments[i]):
			same++
		case strings.EqualFold(own[i], n.segments[i]):
			folded++
		default:
			other = i
		}
	}
	both := min(len(own), len(n.segments))
	switch last := len(own) - 1; {
	case len(own) == len(n.segments) && same == both:
		return 0, "it lists " + strings.Join(methods, ", ") + ", and not " + n.method
	case same == both && len(own) == both+1 && own[last] == "":
		return 1, "its path ends with a slash, and that of the request does not"
	case same == both && len(n.segments) == both+1 && n.segments[both] == "":
		return 1, "the path of the request ends with a slash, and its path does not"
	case len(own) == len(n.segments) && same+folded == both:
		return 2, "upper and lower case differ"
	case len(own) > len(n.segments) && segmentsMatch(own[len(own)-len(n.segments):], n.segments):
		return 3, "its path begins with /" + strings.Join(own[:len(own)-len(n.segments)], "/") + ", and that of the request does not"
	case len(own) < len(n.segments) && segmentsMatch(own, n.segments[len(n.segments)-len(own):]):
		return 3, "the path of the request begins with /" + short(strings.Join(n.segments[:len(n.segments)-len(own)], "/")) + ", and its path does not"
	case same == both && len(own) < len(n.segments):
		return 4, "the path of the request goes on after it: only a path that ends in /* matches what is below"
	case same == both && own[both] == "*":
		return 4, "it matches what is below " + strings.TrimSuffix(path, "/*") + ", and not that path itself"
	case same == both:
		return 5, "the path of the request ends before it"
	case len(own) == len(n.segments) && same == both-1 && both > 1:
		return 6, fmt.Sprintf("it has %q where the request has %q", own[other], short(n.segments[other]))
	}
	return 0, ""
}

// segmentsOf returns the segments of a path.
func segmentsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

// segmentMatches reports whether a segment of a template matches one of a path, as far as that can be seen without the
// text between parameters.
func segmentMatches(template, segment string) bool {
	first := strings.IndexByte(template, '{')
	if first < 0 {
		return template == segment || template == "*"
	}
	last := strings.LastIndexByte(template, '}')
	return segment != "" && strings.HasPrefix(segment, template[:first]) && strings.HasSuffix(segment, template[last+1:])
}

// segmentsMatch reports whether each segment of a template matches one of a path. Both have as many.
func segmentsMatch(template, segments []string) bool {
	for i, own := range template {
		if own == "*" || (own == "") != (segments[i] == "") || own != "" && !segmentMatches(own, segments[i]) {
			return false
		}
	}
	return true
}

// short returns a text that fits into a sentence.
func short(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
