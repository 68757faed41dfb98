package proxy

import (
	"net/http"
	"strings"
)

// IsGRPC reports whether a request with this Content-Type is a gRPC call. Over HTTP/2, the
// gateway's own error responses to such requests are trailers-only (contract, 4.2, end).
func IsGRPC(contentType string) bool {
	const grpc = "application/grpc"
	return len(contentType) >= len(grpc) && strings.EqualFold(contentType[:len(grpc)], grpc)
}

// GRPCStatus returns the gRPC status code that stands for the HTTP status of an error.
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
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return unimplemented
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return resourceExhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return unavailable
	case http.StatusGatewayTimeout:
		return deadlineExceeded
	default:
		return internal
	}
}

// GRPCMessage returns the value of grpc-message for a text: UTF-8 in which every byte but
// the printable ones of ASCII, and the percent sign, is percent-encoded.
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
