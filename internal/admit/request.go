package admit

// Request is what a decision needs of a request's head, as received. Strings
// are not kept beyond the life of the Verdict that they decide.
type Request struct {
	Method string
	// Target is the request target, byte for byte: origin form, absolute form
	// (whose authority counts instead of Host) or "*".
	Target string
	// Host is the Host field or :authority.
	Host string
	// Authorization is the first Authorization field, and Authorizations the
	// number of them.
	Authorization  string
	Authorizations int
	// Origin and PreflightMethod are the fields Origin and
	// Access-Control-Request-Method, "" if absent.
	Origin          string
	PreflightMethod string
}
