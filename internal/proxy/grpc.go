package proxy

import (
	"math"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
)

// IsGRPC reports whether a request with this Content-Type is a gRPC call. Over HTTP/2, the
// gateway's own error responses to such requests are trailers-only (contract, 4.2, end).
func IsGRPC(contentType string) bool {
	const grpc = "application/grpc"
	return len(contentType) >= len(grpc) && strings.EqualFold(contentType[:len(grpc)], grpc)
}

// callTimeout returns the grpc-timeout of a gRPC call. ok is false if the request is not a gRPC
// call, or the value is missing or malformed: the gRPC protocol allows up to 8 digits and a unit.
// A malformed value has no effect in the gateway. It is forwarded, because services differ in how
// they treat it.
func callTimeout(header admit.Header) (d time.Duration, ok bool) {
	value, count := header.HeaderValue("grpc-timeout")
	if count != 1 {
		return 0, false
	}
	if contentType, _ := header.HeaderValue("content-type"); !IsGRPC(contentType) {
		return 0, false
	}
	return parseGRPCTimeout(value)
}

// parseGRPCTimeout parses a value of grpc-timeout. A duration that is too long for a time.Duration
// becomes the longest time.Duration.
func parseGRPCTimeout(value string) (d time.Duration, ok bool) {
	digits := len(value) - 1
	if digits < 1 || digits > 8 {
		return 0, false
	}
	n := time.Duration(0)
	for i := range digits {
		c := value[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + time.Duration(c-'0')
	}
	var unit time.Duration
	switch value[digits] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	if n > math.MaxInt64/unit {
		return math.MaxInt64, true
	}
	return n * unit, true
}

// GRPCStatus returns the gRPC status code that corresponds to the HTTP status of an error.
func GRPCStatus(status int) int {
	const (
		permissionDenied  = 7
		deadlineExceeded  = 4
		resourceExhausted = 8
		unimplemented     = 12
		internal          = 13
		unavailable       = 14
		unauthenticated   = 16
	)
	switch status {
	case http1.StatusUnauthorized:
		return unauthenticated
	case http1.StatusForbidden:
		return permissionDenied
	case http1.StatusNotFound, http1.StatusMethodNotAllowed:
		return unimplemented
	case http1.StatusRequestEntityTooLarge, http1.StatusTooManyRequests:
		return resourceExhausted
	case http1.StatusBadGateway, http1.StatusServiceUnavailable:
		return unavailable
	case http1.StatusGatewayTimeout:
		return deadlineExceeded
	default:
		return internal
	}
}

// GRPCMessage returns the value of grpc-message for a text: UTF-8 in which the percent sign, and
// every byte that is not printable ASCII, is percent-encoded.
func GRPCMessage(text string) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}
