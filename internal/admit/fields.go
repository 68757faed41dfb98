package admit

import (
	"strconv"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// EachField calls yield with each field that every answer to the request must
// carry: the rate limit fields (contract, 4.3), and, where they apply,
// Retry-After, WWW-Authenticate, Allow and the CORS fields. An upstream's fields
// of the names X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset,
// RateLimit and RateLimit-Policy must be dropped, and Vary must be added to, not
// replaced. value is valid until yield returns; it stands in scratch if that has
// room, for which 256 bytes are enough but for the lists of Allow and CORS.
func (v *Verdict) EachField(scratch []byte, yield func(name string, value []byte)) {
	for f := range fieldCount {
		if name, value := v.appendField(f, scratch[:0]); len(value) > 0 {
			yield(name, value)
		}
	}
}

// AppendFields appends what EachField tells, each as "Name: value\r\n". It
// allocates only if dst lacks room.
func (v *Verdict) AppendFields(dst []byte) []byte {
	for f := range fieldCount {
		// The value first, to learn whether there is one; then its name is
		// put in front.
		name, end := v.appendField(f, dst)
		size := len(end) - len(dst)
		if size == 0 {
			continue
		}
		start := len(dst)
		end = append(end, name...)
		end = append(end, ": \r\n"...)
		copy(end[start+len(name)+2:], end[start:start+size])
		copy(end[start:], name)
		copy(end[start+len(name):], ": ")
		copy(end[len(end)-2:], "\r\n")
		dst = end
	}
	return dst
}

// The fields that an answer may carry, in their order.
const (
	limitField = iota
	remainingField
	resetField
	policyField
	limitsField
	retryField
	challengeField
	allowField
	originField
	methodsField
	headersField
	ageField
	varyField
	fieldCount
)

// appendField appends the value of one field, or nothing if it does not apply.
func (v *Verdict) appendField(field int, dst []byte) (name string, value []byte) {
	if field <= retryField && v.applied == 0 {
		return "", dst
	}
	switch field {
	case limitField:
		return "X-RateLimit-Limit", strconv.AppendInt(dst, v.standings[v.worst].Limit, 10)
	case remainingField:
		return "X-RateLimit-Remaining", strconv.AppendInt(dst, v.standings[v.worst].Remaining, 10)
	case resetField:
		return "X-RateLimit-Reset", strconv.AppendInt(dst, v.standings[v.worst].ResetAt, 10)
	case policyField:
		return "RateLimit-Policy", ratelimit.AppendPolicy(dst, v.standings[:v.applied])
	case limitsField:
		return "RateLimit", ratelimit.AppendLimits(dst, v.standings[:v.applied])
	case retryField:
		if v.Code == fault.RateLimitExceeded {
			return "Retry-After", strconv.AppendInt(dst, v.standings[v.worst].RetryAfter, 10)
		}
	case challengeField:
		if v.Code == fault.Unauthorized {
			return "WWW-Authenticate", append(dst, "Bearer"...)
		}
	case allowField:
		return "Allow", append(dst, v.Allow...)
	case originField:
		return "Access-Control-Allow-Origin", append(dst, v.AllowOrigin...)
	case methodsField, headersField, ageField:
		if v.Outcome == Preflight && v.AllowOrigin != "" {
			return v.appendPreflight(field, dst)
		}
	case varyField:
		if v.VaryOrigin {
			return "Vary", append(dst, "Origin"...)
		}
	}
	return "", dst
}

// appendPreflight is appendField for what a preflight alone is told.
func (v *Verdict) appendPreflight(field int, dst []byte) (name string, value []byte) {
	switch cors := v.Gateway.CORS; field {
	case methodsField:
		return "Access-Control-Allow-Methods", append(dst, cors.Methods...)
	case headersField:
		return "Access-Control-Allow-Headers", append(dst, cors.Headers...)
	default:
		return "Access-Control-Max-Age", append(dst, cors.MaxAge...)
	}
}
