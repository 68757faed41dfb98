package ratelimit

import "strconv"

// AppendPolicy appends the value of the header field RateLimit-Policy, with one item for
// each status except those of the default limit: "key";q=100;w=60, "route";q=50;w=1. It
// appends nothing if there are no items.
func AppendPolicy(dst []byte, statuses []Status) []byte {
	start := len(dst)
	for i := range statuses {
		s := &statuses[i]
		if s.Default {
			continue
		}
		dst = appendName(dst, start, s.Scope)
		if s.policy != nil {
			dst = append(dst, s.policy.policy...)
		} else {
			dst = appendPolicy(dst, s.Limit, s.Window)
		}
	}
	return dst
}

func policyOf(limit, window int64) string { return string(appendPolicy(nil, limit, window)) }

func appendPolicy(dst []byte, limit, window int64) []byte {
	dst = strconv.AppendInt(append(dst, ";q="...), limit, 10)
	return strconv.AppendInt(append(dst, ";w="...), window, 10)
}

// AppendLimits appends the value of the header field RateLimit in the same way:
// "key";r=99;t=1, "route";r=49;t=1.
func AppendLimits(dst []byte, statuses []Status) []byte {
	start := len(dst)
	for i := range statuses {
		s := &statuses[i]
		if s.Default {
			continue
		}
		dst = append(appendName(dst, start, s.Scope), ";r="...)
		dst = strconv.AppendInt(dst, s.Remaining, 10)
		dst = strconv.AppendInt(append(dst, ";t="...), s.ResetIn, 10)
	}
	return dst
}

// appendName appends the beginning of an item: a separator unless it is the first, and the
// scope in quotes.
func appendName(dst []byte, start int, scope Scope) []byte {
	if len(dst) > start {
		dst = append(dst, ", "...)
	}
	switch scope { // constants, so that the compiler knows their lengths
	case KeyScope:
		return append(dst, `"key"`...)
	case KeyDailyScope: // names must differ
		return append(dst, `"key-daily"`...)
	case RouteScope:
		return append(dst, `"route"`...)
	case DailyScope:
		return append(dst, `"daily"`...)
	case GlobalScope:
		return append(dst, `"global"`...)
	default:
		return append(append(append(dst, '"'), scope.String()...), '"')
	}
}
