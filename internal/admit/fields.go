package admit

import (
	"strconv"

	"github.com/keygate/keygate/internal/fault"
)

// EachField calls yield with each header field that the response must carry: the rate limit
// fields (contract, 4.3) and, where they apply, Retry-After, WWW-Authenticate, Allow, Cache-Control and
// the CORS fields. The engine must drop the upstream's fields X-RateLimit-Limit,
// X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit and RateLimit-Policy. It must add
// Vary and Access-Control-Expose-Headers to the upstream's, not replace them. value is valid
// until yield returns. It is stored
// in scratch if it fits; 256 bytes are enough, except for the lists of Allow and CORS.
func (v *Verdict) EachField(scratch []byte, yield func(name string, value []byte)) {
	for f := range fieldCount {
		if value := v.appendValue(f, scratch[:0]); len(value) > 0 {
			yield(f.String(), value)
		}
	}
}

// AppendFields appends the fields of EachField, each as "Name: value\r\n". It allocates
// only if dst lacks room.
func (v *Verdict) AppendFields(dst []byte) []byte {
	dst = v.appendStatuses(dst)
	first := retryField
	if v.Action == Forward && v.AllowOrigin == "" && !v.VaryOrigin {
		return dst // nothing else applies
	}
	for f := first; f < fieldCount; f++ {
		start := len(dst)
		dst = append(append(dst, f.String()...), ": "...)
		empty := len(dst)
		if dst = v.appendValue(f, dst); len(dst) == empty {
			dst = dst[:start]
			continue
		}
		dst = append(dst, "\r\n"...)
	}
	return dst
}

// appendStatuses appends the lines of the fields up to limitsField, which almost every
// response has.
func (v *Verdict) appendStatuses(dst []byte) []byte {
	if worst := v.Charge.Worst(); worst != nil {
		dst = strconv.AppendInt(append(dst, "X-RateLimit-Limit: "...), worst.Limit, 10)
		dst = strconv.AppendInt(append(dst, "\r\nX-RateLimit-Remaining: "...), worst.Remaining, 10)
		dst = strconv.AppendInt(append(dst, "\r\nX-RateLimit-Reset: "...), worst.ResetAt, 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "RateLimit-Policy: "...)
	value := len(dst)
	dst = v.Charge.AppendPolicy(dst)
	if len(dst) == value {
		return dst[:value-len("RateLimit-Policy: ")]
	}
	dst = append(dst, "\r\nRateLimit: "...)
	dst = v.Charge.AppendLimits(dst)
	return append(dst, "\r\n"...)
}

// field is one of the header fields of a response, in their order.
type field uint8

const (
	limitField field = iota
	remainingField
	resetField
	policyField
	limitsField
	retryField
	challengeField
	allowField
	originField
	exposeField
	methodsField
	headersField
	ageField
	storeField
	varyField
	fieldCount
)

// exposed lists the gateway's own fields that scripts of an allowed origin may read
// (contract, 3.3).
const exposed = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, X-Request-Id"

// String returns the name of the field.
func (f field) String() string {
	switch f {
	case limitField:
		return "X-RateLimit-Limit"
	case remainingField:
		return "X-RateLimit-Remaining"
	case resetField:
		return "X-RateLimit-Reset"
	case policyField:
		return "RateLimit-Policy"
	case limitsField:
		return "RateLimit"
	case retryField:
		return "Retry-After"
	case challengeField:
		return "WWW-Authenticate"
	case allowField:
		return "Allow"
	case originField:
		return "Access-Control-Allow-Origin"
	case exposeField:
		return "Access-Control-Expose-Headers"
	case methodsField:
		return "Access-Control-Allow-Methods"
	case headersField:
		return "Access-Control-Allow-Headers"
	case ageField:
		return "Access-Control-Max-Age"
	case storeField:
		return "Cache-Control"
	default:
		return "Vary"
	}
}

// appendValue appends the value of a field, or nothing if it does not apply.
func (v *Verdict) appendValue(f field, dst []byte) []byte {
	if f <= retryField {
		return v.appendLimit(f, dst)
	}
	switch f {
	case challengeField:
		if v.Auth == fault.TokenInvalid || v.Auth == fault.TokenExpired {
			return append(dst, `Bearer error="invalid_token"`...)
		}
		if v.Code == fault.Unauthorized {
			return append(dst, "Bearer"...)
		}
	case allowField:
		return append(dst, v.Allow...)
	case originField:
		return append(dst, v.AllowOrigin...)
	case exposeField:
		if v.Action != Preflight && v.AllowOrigin != "" {
			return append(dst, exposed...)
		}
	case methodsField, headersField, ageField:
		if v.Action == Preflight && v.AllowOrigin != "" {
			return v.appendPreflight(f, dst)
		}
	case storeField:
		if v.private {
			return append(dst, "no-store"...)
		}
	case varyField:
		if v.VaryOrigin {
			return append(dst, "Origin"...)
		}
	}
	return dst
}

// appendLimit is appendValue for the rate limit fields.
func (v *Verdict) appendLimit(f field, dst []byte) []byte {
	switch f {
	case policyField:
		return v.Charge.AppendPolicy(dst)
	case limitsField:
		return v.Charge.AppendLimits(dst)
	}
	worst := v.Charge.Worst()
	if worst == nil {
		return dst
	}
	switch f {
	case limitField:
		return strconv.AppendInt(dst, worst.Limit, 10)
	case remainingField:
		return strconv.AppendInt(dst, worst.Remaining, 10)
	case resetField:
		return strconv.AppendInt(dst, worst.ResetAt, 10)
	default:
		if v.Code != fault.RateLimitExceeded {
			return dst
		}
		return strconv.AppendInt(dst, worst.RetryAfter, 10)
	}
}

// appendPreflight is appendValue for the fields that only a preflight response has.
func (v *Verdict) appendPreflight(f field, dst []byte) []byte {
	switch cors := v.preflight; f {
	case methodsField:
		return append(dst, cors.Methods...)
	case headersField:
		return append(dst, cors.Headers...)
	default:
		return append(dst, cors.MaxAge...)
	}
}
