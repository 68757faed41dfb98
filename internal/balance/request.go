package balance

// Idempotent reports whether sending a request with the method twice has the effect of sending it once (contract, 4.4).
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}

// IsSmall reports whether a request may be the only one at a half-open address (targets.md, section 3). length is that of its body,
// 0 without one, or a negative number if it is unknown.
func IsSmall(method string, length int64) bool {
	const most = 64 << 10
	return Idempotent(method) && length >= 0 && length <= most
}
