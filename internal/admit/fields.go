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
// replaced. value is valid until yield returns; scratch holds it, for which 256
// bytes are enough but for the lists of Allow and CORS. It allocates only if
// scratch is too small.
func (v *Verdict) EachField(scratch []byte, yield func(name string, value []byte)) {
	b := scratch[:0]
	if v.applied > 0 {
		all := v.standings[:v.applied]
		worst := &all[v.worst]
		yield("X-RateLimit-Limit", strconv.AppendInt(b, worst.Limit, 10))
		yield("X-RateLimit-Remaining", strconv.AppendInt(b, worst.Remaining, 10))
		yield("X-RateLimit-Reset", strconv.AppendInt(b, worst.ResetAt, 10))
		if policy := ratelimit.AppendPolicy(b, all); len(policy) > 0 {
			yield("RateLimit-Policy", policy)
			yield("RateLimit", ratelimit.AppendLimits(b, all))
		}
		if v.Code == fault.RateLimitExceeded {
			yield("Retry-After", strconv.AppendInt(b, worst.RetryAfter, 10))
		}
	}
	text := func(name, value string) {
		if value != "" {
			yield(name, append(b, value...))
		}
	}
	if v.Code == fault.Unauthorized {
		text("WWW-Authenticate", "Bearer")
	}
	text("Allow", v.Allow)
	text("Access-Control-Allow-Origin", v.AllowOrigin)
	if v.Outcome == Preflight && v.AllowOrigin != "" {
		cors := v.Gateway.CORS
		text("Access-Control-Allow-Methods", cors.Methods)
		text("Access-Control-Allow-Headers", cors.Headers)
		text("Access-Control-Max-Age", cors.MaxAge)
	}
	if v.VaryOrigin {
		text("Vary", "Origin")
	}
}

// AppendFields appends what EachField tells, each as "Name: value\r\n". It
// allocates only if dst lacks room.
func (v *Verdict) AppendFields(dst []byte) []byte {
	var room [1024]byte
	v.EachField(room[:], func(name string, value []byte) {
		dst = append(dst, name...)
		dst = append(dst, ": "...)
		dst = append(dst, value...)
		dst = append(dst, "\r\n"...)
	})
	return dst
}
