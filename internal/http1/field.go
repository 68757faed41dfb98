package http1

// Span is a part of the buffer that holds a head: the bytes from Start up to End.
type Span struct{ Start, End uint32 }

// Of returns the span's bytes in buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len returns the length in bytes.
func (s Span) Len() int { return int(s.End - s.Start) }

// Name identifies a field that a proxy must recognize by its name.
type Name uint8

// The fields that a proxy recognizes.
const (
	Other Name = iota // all other fields
	Host
	Connection
	ContentLength
	TransferEncoding
	TE
	Trailer
	Upgrade
	Expect
	KeepAlive
	ProxyConnection
	ProxyAuthenticate
	ProxyAuthorization
	Authorization
	Via
	Forwarded
	XForwardedFor
	XForwardedHost
	XForwardedProto
	XForwarded // any other X-Forwarded-*
	XRequestID
	XKeygate  // any X-Keygate-*
	RateLimit // X-RateLimit-Limit, -Remaining and -Reset, RateLimit, RateLimit-Policy
	Origin
	AccessControl // Access-Control-Request-Method
	Vary
	AllowOrigin // Access-Control-Allow-Origin
	HTTP2Settings
	Date
	Traceparent
	ClientAddress // X-Real-IP, X-Client-IP, True-Client-IP, CF-Connecting-IP
	Lookalike     // Content-Length or Transfer-Encoding with an underscore for the dash
	Cookie
	SetCookie
	AltSvc
	WWWAuthenticate
)

// NameOf returns the Name of a field name, and Other for an empty one.
func NameOf(name []byte) Name {
	if len(name) == 0 {
		return Other
	}
	return classify(name)
}

// classify returns the Name of a field name, which must not be empty. It switches on the
// length and the first byte before it compares names.
//
// In the names of fields that the gateway sets itself (X-Keygate-*, X-Forwarded-*, X-Request-Id,
// RateLimit*), and of fields that name the client's address, an underscore counts as a dash. Many
// applications cannot tell the two apart, so a client's X_Keygate_Key_Id must be recognized as
// well. A Content_Length or Transfer_Encoding is a Lookalike, which frames nothing here.
func classify(b []byte) Name {
	first := b[0] | 0x20
	if first == 'x' {
		return classifyX(b)
	}
	switch len(b) {
	case 2:
		return nameIf(b, "te", TE)
	case 3:
		return nameIf(b, "via", Via)
	case 4:
		switch first {
		case 'h':
			return nameIf(b, "host", Host)
		case 'd':
			return nameIf(b, "date", Date)
		case 'v':
			return nameIf(b, "vary", Vary)
		}
	case 6:
		switch first {
		case 'c':
			return nameIf(b, "cookie", Cookie)
		case 'e':
			return nameIf(b, "expect", Expect)
		case 'o':
			return nameIf(b, "origin", Origin)
		}
	case 7:
		switch first {
		case 'a':
			return nameIf(b, "alt-svc", AltSvc)
		case 't':
			return nameIf(b, "trailer", Trailer)
		case 'u':
			return nameIf(b, "upgrade", Upgrade)
		}
	case 9:
		switch {
		case first == 'f':
			return nameIf(b, "forwarded", Forwarded)
		case first == 'r' && hasDashedPrefix(b, "ratelimit"):
			return RateLimit
		}
	case 10:
		switch first {
		case 'c':
			return nameIf(b, "connection", Connection)
		case 'k':
			return nameIf(b, "keep-alive", KeepAlive)
		case 's':
			return nameIf(b, "set-cookie", SetCookie)
		}
	case 11:
		return nameIf(b, "traceparent", Traceparent)
	case 13:
		return nameIf(b, "authorization", Authorization)
	case 14:
		switch first {
		case 'c':
			return framing(b, "content-length", ContentLength)
		case 'h':
			return nameIf(b, "http2-settings", HTTP2Settings)
		case 't':
			return dashedIf(b, "true-client-ip", ClientAddress)
		}
	case 16:
		switch {
		case first == 'p':
			return nameIf(b, "proxy-connection", ProxyConnection)
		case first == 'c':
			return dashedIf(b, "cf-connecting-ip", ClientAddress)
		case first == 'r' && hasDashedPrefix(b, "ratelimit-policy"):
			return RateLimit
		case first == 'w':
			return nameIf(b, "www-authenticate", WWWAuthenticate)
		}
	case 17:
		return framing(b, "transfer-encoding", TransferEncoding)
	case 18:
		return nameIf(b, "proxy-authenticate", ProxyAuthenticate)
	case 19:
		return nameIf(b, "proxy-authorization", ProxyAuthorization)
	case 27:
		return nameIf(b, "access-control-allow-origin", AllowOrigin)
	case 29:
		return nameIf(b, "access-control-request-method", AccessControl)
	}
	return Other
}

// nameIf returns name if b equals lower, ignoring case, and Other if not.
func nameIf(b []byte, lower string, name Name) Name {
	if EqualFold(b, lower) {
		return name
	}
	return Other
}

// dashedIf is nameIf with an underscore equal to a dash.
func dashedIf(b []byte, lower string, name Name) Name {
	if equalDashed(b, lower) {
		return name
	}
	return Other
}

// framing is nameIf for the name of a field that frames the body. A name with an underscore instead
// of the dash is a Lookalike.
func framing(b []byte, lower string, name Name) Name {
	if EqualFold(b, lower) {
		return name
	}
	return dashedIf(b, lower, Lookalike)
}

// classifyX is classify for names that begin with an x.
func classifyX(b []byte) Name {
	switch {
	case len(b) == len("x-real-ip"):
		return dashedIf(b, "x-real-ip", ClientAddress)
	case len(b) < len("x-keygate-"):
		return Other
	case hasDashedPrefix(b, "x-keygate-"):
		return XKeygate
	case equalDashed(b, "x-ratelimit-limit"), equalDashed(b, "x-ratelimit-remaining"), equalDashed(b, "x-ratelimit-reset"):
		return RateLimit
	case equalDashed(b, "x-request-id"):
		return XRequestID
	case equalDashed(b, "x-client-ip"):
		return ClientAddress
	case !hasDashedPrefix(b, "x-forwarded-"):
		return Other
	case equalDashed(b, "x-forwarded-for"):
		return XForwardedFor
	case equalDashed(b, "x-forwarded-host"):
		return XForwardedHost
	case equalDashed(b, "x-forwarded-proto"):
		return XForwardedProto
	}
	return XForwarded
}

// equalDashed is EqualFold with an underscore equal to a dash.
func equalDashed(b []byte, lower string) bool {
	return len(b) == len(lower) && hasDashedPrefix(b, lower)
}

// hasDashedPrefix reports whether b begins with lower, as equalDashed compares.
func hasDashedPrefix(b []byte, lower string) bool {
	if len(b) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := b[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		case c == '_':
			c = '-'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Field is one field line of a head.
type Field struct {
	Name  Span
	Value Span // without leading and trailing white space
	ID    Name
	// Sensitive is set if the sender asked that no hop compress the field (RFC 7541, 7.1.3).
	// HTTP/1.1 has no such request.
	Sensitive bool
}
