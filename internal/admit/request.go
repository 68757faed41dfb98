package admit

// Request is the part of a request's head that a decision needs, as received. Its strings
// are not used beyond the life of the Verdict.
type Request struct {
	Method string
	// Target is the request target, byte for byte: origin form, absolute form (whose
	// authority takes precedence over Host), or "*".
	Target string
	// Host is the Host header or :authority.
	Host string
	// Authorization is the first Authorization header, and Authorizations the number of
	// them.
	Authorization  string
	Authorizations int
	// Origin and PreflightMethod are the headers Origin and Access-Control-Request-Method,
	// "" if absent.
	Origin          string
	PreflightMethod string
}
