package ratelimit

import "strconv"

// AppendPolicy appends the value of the header field RateLimit-Policy, with one item for each
// status except for the default limit's: "key";q=100;w=60, "route";q=50;w=1. A limit of requests in flight has no w. It
// appends nothing if there are no items.
func (c *Charge) AppendPolicy(dst []byte) []byte {
	start := len(dst)
	entries := c.entries()[:c.shown]
	for i := range entries {
		e := &entries[i]
		if e.Default {
			continue
		}
		dst = appendName(dst, start, &e.Limit)
		switch {
		case e.Slots != nil:
			dst = strconv.AppendInt(append(dst, ";q="...), e.status.Limit, 10)
			dst = append(dst, concurrentRequests...)
			continue
		case e.Params != nil:
			dst = append(dst, e.Params.policy...)
		default:
			dst = appendPolicy(dst, e.status.Limit, e.status.Window)
		}
		if e.Label != nil {
			dst = append(dst, e.Label.unit...)
		}
	}
	return dst
}

// concurrentRequests is the unit of limits of requests in flight.
const concurrentRequests = `;qu="concurrent-requests"`

func policyOf(limit, window int64) string { return string(appendPolicy(nil, limit, window)) }

func appendPolicy(dst []byte, limit, window int64) []byte {
	dst = strconv.AppendInt(append(dst, ";q="...), limit, 10)
	return strconv.AppendInt(append(dst, ";w="...), window, 10)
}

// AppendLimits appends the value of the header field RateLimit in the same way:
// "key";r=99;t=1, "route";r=49;t=1. Of limits of requests in flight, t is there only if they refuse.
func (c *Charge) AppendLimits(dst []byte) []byte {
	start := len(dst)
	entries := c.entries()[:c.shown]
	for i := range entries {
		e := &entries[i]
		if e.Default {
			continue
		}
		dst = append(appendName(dst, start, &e.Limit), ";r="...)
		dst = strconv.AppendInt(dst, e.status.Remaining, 10)
		if e.Slots == nil || e.status.Refused {
			dst = strconv.AppendInt(append(dst, ";t="...), e.status.ResetIn, 10)
		}
	}
	return dst
}

// appendName appends the beginning of an item: a separator unless it is the first, and the
// name of the limit in quotes.
func appendName(dst []byte, start int, l *Limit) []byte {
	if len(dst) > start {
		dst = append(dst, ", "...)
	}
	if l.Label != nil {
		return append(dst, l.Label.item...)
	}
	return append(dst, l.Scope.row().item...)
}
