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
	own      []string // memory for the segments of a route
	seen     map[pathAndMethods]bool
	found    []nearRoute
}

// pathAndMethods are a route's path and methods, with spaces between them.
type pathAndMethods struct{ path, methods string }

// nearRoute is a route that comes near.
type nearRoute struct {
	pathAndMethods
	miss miss
}

// miss is how a route misses a request.
type miss uint8

// The kinds of a miss, the nearest first.
const (
	byMethod       miss = iota + 1
	bySlash             // at the end of the route's path alone
	bySlashTooMany      // at the end of the request's path alone
	byCase
	byPrefix        // of the route
	byPrefixTooMany // of the request
	byEndTooMany    // of the request
	byWildcard      // which does not match what is above it
	byEnd           // of the route
	bySegment
)

// rank is lower the nearer a route comes.
func (m miss) rank() uint8 {
	return [...]uint8{byMethod: 0, bySlash: 1, bySlashTooMany: 1, byCase: 2, byPrefix: 3, byPrefixTooMany: 3, byEndTooMany: 4, byWildcard: 4, byEnd: 5, bySegment: 6}[m]
}

// NewNearness returns the Nearness of a request. path is in the normal form of NormalizePath.
func NewNearness(method, path string) *Nearness {
	return &Nearness{method: method, segments: appendSegments(nil, path), seen: map[pathAndMethods]bool{}}
}

// Look compares a route with the request. methods has a space between each two. A route may be given several times.
func (n *Nearness) Look(path, methods string) {
	r := pathAndMethods{path, methods}
	if n.seen[r] {
		return
	}
	n.seen[r] = true
	n.own = appendSegments(n.own[:0], path)
	if m := n.miss(); m != 0 {
		n.found = append(n.found, nearRoute{r, m})
	}
}

// Nearest returns at most so many routes, the nearest first.
func (n *Nearness) Nearest(most int) []NearRoute {
	slices.SortFunc(n.found, func(a, b nearRoute) int {
		return cmp.Or(cmp.Compare(a.miss.rank(), b.miss.rank()), strings.Compare(a.path, b.path))
	})
	list := make([]NearRoute, min(len(n.found), most))
	for i := range list {
		r := &n.found[i]
		list[i] = NearRoute{r.path, strings.Split(r.methods, " "), n.why(r)}
	}
	return list
}

// miss returns how the route whose segments are own misses the request; 0 if it does not come near.
func (n *Nearness) miss() miss {
	own := n.own
	same, folded := 0, 0
	both := min(len(own), len(n.segments))
	for i := range both {
		switch {
		case segmentMatches(own[i], n.segments[i]):
			same++
		case strings.EqualFold(own[i], n.segments[i]):
			folded++
		}
	}
	switch last := len(own) - 1; {
	case len(own) == len(n.segments) && same == both:
		return byMethod
	case same == both && len(own) == both+1 && own[last] == "":
		return bySlash
	case same == both && len(n.segments) == both+1 && n.segments[both] == "":
		return bySlashTooMany
	case len(own) == len(n.segments) && same+folded == both:
		return byCase
	case len(own) > len(n.segments) && segmentsMatch(own[len(own)-len(n.segments):], n.segments):
		return byPrefix
	case len(own) < len(n.segments) && segmentsMatch(own, n.segments[len(n.segments)-len(own):]):
		return byPrefixTooMany
	case same == both && len(own) < len(n.segments):
		return byEndTooMany
	case same == both && own[both] == "*":
		return byWildcard
	case same == both:
		return byEnd
	case len(own) == len(n.segments) && same == both-1 && both > 1:
		return bySegment
	}
	return 0
}

// why says why the route does not match.
func (n *Nearness) why(r *nearRoute) string {
	own := appendSegments(nil, r.path)
	switch r.miss {
	case byMethod:
		return "it lists " + strings.ReplaceAll(r.methods, " ", ", ") + ", and not " + n.method
	case bySlash:
		return "its path ends with a slash, and that of the request does not"
	case bySlashTooMany:
		return "the path of the request ends with a slash, and its path does not"
	case byCase:
		return "upper and lower case differ"
	case byPrefix:
		return "its path begins with /" + Shorten(strings.Join(own[:len(own)-len(n.segments)], "/")) + ", and that of the request does not"
	case byPrefixTooMany:
		return "the path of the request begins with /" + Shorten(strings.Join(n.segments[:len(n.segments)-len(own)], "/")) + ", and its path does not"
	case byEndTooMany:
		return "the path of the request goes on after it: only a path that ends in /* matches what is below"
	case byWildcard:
		return "it matches what is below " + Shorten(strings.TrimSuffix(r.path, "/*")) + ", and not that path itself"
	case byEnd:
		return "the path of the request ends before it"
	default: // bySegment
		i := 0
		for segmentMatches(own[i], n.segments[i]) {
			i++
		}
		return fmt.Sprintf("it has %q where the request has %q", Shorten(own[i]), Shorten(n.segments[i]))
	}
}

// appendSegments appends the segments of a path.
func appendSegments(dst []string, path string) []string {
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		dst = append(dst, segment)
	}
	return dst
}

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

// Shorten returns a text that fits into a sentence: the first 60 bytes of a longer one, and an ellipsis.
func Shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
