package http1

// Span is a part of the buffer that holds a head.
type Span struct{ Start, End uint32 }

// Of returns the part of buf.
func (s Span) Of(buf []byte) []byte { return buf[s.Start:s.End] }

// Len returns the number of bytes.
func (s Span) Len() int { return int(s.End - s.Start) }

// Name tells the fields that a proxy must know by name from all others.
type Name uint8

// The fields that mean something to a proxy.
const (
	Other Name = iota
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
	XKeygate  // any X-Keygate-*, with - or _
	RateLimit // X-RateLimit-*, RateLimit, RateLimit-Policy
	Origin
	AccessControl // Access-Control-Request-Method
	Vary
	AllowOrigin // Access-Control-Allow-Origin
	HTTP2Settings
	Date
)

// NameOf returns the Name of a field name, Other for one that is none.
func NameOf(name []byte) Name {
	if len(name) == 0 {
		return Other
	}
	return classify(name)
}

// classify returns the Name of a field name, looking at its length and first
// byte before it compares anything. An underscore counts as a dash where the
// field is ours, since applications read both alike.
func classify(b []byte) Name {
	switch b[0] | 0x20 {
	case 'a':
		switch {
		case EqualFold(b, "authorization"):
			return Authorization
		case EqualFold(b, "access-control-request-method"):
			return AccessControl
		case EqualFold(b, "access-control-allow-origin"):
			return AllowOrigin
		}
	case 'c':
		switch {
		case EqualFold(b, "connection"):
			return Connection
		case EqualFold(b, "content-length"):
			return ContentLength
		}
	case 'd':
		if EqualFold(b, "date") {
			return Date
		}
	case 'e':
		if EqualFold(b, "expect") {
			return Expect
		}
	case 'f':
		if EqualFold(b, "forwarded") {
			return Forwarded
		}
	case 'h':
		switch {
		case EqualFold(b, "host"):
			return Host
		case EqualFold(b, "http2-settings"):
			return HTTP2Settings
		}
	case 'k':
		if EqualFold(b, "keep-alive") {
			return KeepAlive
		}
	case 'o':
		if EqualFold(b, "origin") {
			return Origin
		}
	case 'p':
		switch {
		case EqualFold(b, "proxy-connection"):
			return ProxyConnection
		case EqualFold(b, "proxy-authenticate"):
			return ProxyAuthenticate
		case EqualFold(b, "proxy-authorization"):
			return ProxyAuthorization
		}
	case 'r':
		if hasDashedPrefix(b, "ratelimit") && (len(b) == 9 || dashed(b, "ratelimit-policy")) {
			return RateLimit
		}
	case 't':
		switch {
		case EqualFold(b, "te"):
			return TE
		case EqualFold(b, "trailer"):
			return Trailer
		case EqualFold(b, "transfer-encoding"):
			return TransferEncoding
		}
	case 'u':
		if EqualFold(b, "upgrade") {
			return Upgrade
		}
	case 'v':
		switch {
		case EqualFold(b, "via"):
			return Via
		case EqualFold(b, "vary"):
			return Vary
		}
	case 'x':
		switch {
		case hasDashedPrefix(b, "x-keygate-"):
			return XKeygate
		case hasDashedPrefix(b, "x-ratelimit-"):
			return RateLimit
		case dashed(b, "x-request-id"):
			return XRequestID
		case dashed(b, "x-forwarded-for"):
			return XForwardedFor
		case dashed(b, "x-forwarded-host"):
			return XForwardedHost
		case dashed(b, "x-forwarded-proto"):
			return XForwardedProto
		case hasDashedPrefix(b, "x-forwarded-"):
			return XForwarded
		}
	}
	return Other
}

// dashed is EqualFold with an underscore equal to a dash.
func dashed(b []byte, lower string) bool {
	return len(b) == len(lower) && hasDashedPrefix(b, lower)
}

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
	Value Span // without white space at its ends
	ID    Name
}
