package admit

import (
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/http1"
)

// MaxTarget is the largest request target in bytes (contract, 4.5).
const MaxTarget = 16 << 10

// target is a parsed request target. Its strings are parts of the request's.
type target struct {
	host     string // the authority that takes precedence
	path     string
	query    string
	hasQuery bool
	normal   bool // path is normalized as by gateway.NormalizePath
	encoded  bool // a segment has an encoded slash or backslash

	// The number of api_key parameters in the query, the value of the first as it
	// is written, and the query without it.
	apiKeys int
	apiKey  string
	head    string
	tail    string
	emptied bool // the query without api_key is empty
}

// read parses and checks a request's target and authority (contract, 4.5), except whether
// the gateway allows encoded slashes. If the request must be refused, it returns the code and the public message.
func (t *target) read(req *Request) (code fault.Code, reason string) {
	switch {
	case req.Method == "CONNECT" || req.Method == "TRACE":
		return fault.MethodNotAllowed, ""
	case len(req.Target) > MaxTarget:
		return fault.TargetTooLong, ""
	}
	t.host = req.Host
	rest := req.Target
	if rest == "" || rest[0] != '/' {
		if rest == "*" {
			return fault.InvalidRequest, "the request target * is not supported: send a path"
		}
		authority, after, ok := cutAbsolute(rest)
		if !ok {
			return fault.InvalidRequest, "the request target is neither a path nor an http or https URL"
		}
		t.host, rest = authority, after
	}
	if !http1.ValidAuthority(t.host) {
		return fault.InvalidRequest, "the request has no valid host"
	}
	t.path, t.query, t.hasQuery = strings.Cut(rest, "?")
	if t.path == "" { // absolute form without a path
		t.path = "/"
	}
	var problem string
	if problem, t.normal, t.encoded = gateway.InspectRequestPath(t.path); problem != "" {
		return fault.InvalidRequest, problem
	}
	if problem = t.readQuery(); problem != "" {
		return fault.InvalidRequest, problem
	}
	return "", ""
}

// cutAbsolute splits an absolute form into its authority and the rest.
func cutAbsolute(s string) (authority, rest string, ok bool) {
	switch {
	case len(s) >= 7 && strings.EqualFold(s[:7], "http://"):
		s = s[7:]
	case len(s) >= 8 && strings.EqualFold(s[:8], "https://"):
		s = s[8:]
	default:
		return "", "", false
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		return s[:i], s[i:], true
	}
	return s, "", true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// readQuery checks the query and finds its api_key parameters. It returns the public
// message of a refusal, or "".
func (t *target) readQuery() (problem string) {
	t.head = t.query
	var all byte
	for i := range len(t.query) {
		c := t.query[i]
		all |= c
		switch {
		case c == '#':
			return "the request target contains a fragment"
		case c <= 0x20 || c == 0x7f:
			return "the query contains a space or a control byte"
		}
	}
	if all >= utf8.RuneSelf && !utf8.ValidString(t.query) {
		return "the query contains bytes that are not valid UTF-8: percent-encode them"
	}
	for start := 0; start < len(t.query); {
		end := len(t.query)
		if i := strings.IndexByte(t.query[start:], '&'); i >= 0 {
			end = start + i
		}
		if value, ok := cutAPIKey(t.query[start:end]); ok {
			if t.apiKeys++; t.apiKeys == 1 {
				t.apiKey = value
				t.cut(start, end)
			}
		}
		start = end + 1
	}
	return ""
}

// cut removes the parameter from start to end from the query, and one adjacent &.
func (t *target) cut(start, end int) {
	t.head, t.tail = t.query[:start], t.query[end:]
	switch {
	case t.tail != "":
		t.tail = t.tail[1:]
	case t.head != "":
		t.head = t.head[:len(t.head)-1]
	}
	t.emptied = t.head == "" && t.tail == ""
}

// cutAPIKey returns the value of param, as it is written, if its percent-decoded name is
// api_key.
func cutAPIKey(param string) (value string, ok bool) {
	const name = "api_key"
	i := 0
	for n := range len(name) {
		switch {
		case i < len(param) && param[i] == name[n]:
			i++
		case i+2 < len(param) && param[i] == '%' && isHex(param[i+1]) && isHex(param[i+2]) && unhex(param[i+1])<<4|unhex(param[i+2]) == name[n]:
			i += 3
		default:
			return "", false
		}
	}
	switch {
	case i == len(param):
		return "", true
	case param[i] == '=':
		return param[i+1:], true
	default:
		return "", false
	}
}

// unhex returns the value of a hexadecimal digit.
func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	default:
		return c&^0x20 - 'A' + 10
	}
}

// decode percent-decodes a parameter's value. It leaves invalid escapes as they are, which
// no key string contains. It allocates only if there is an escape.
func decode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

// bearer returns the credential of an Authorization header with the scheme Bearer, valid or
// not. ok is false for another scheme, or none.
func bearer(field string) (credential string, ok bool) {
	const scheme, usual = "bearer", "Bearer "
	if len(field) > len(usual) && field[:len(usual)] == usual && field[len(usual)] != ' ' && field[len(field)-1] > ' ' {
		return field[len(usual):], true
	}
	if len(field) < len(scheme) || !strings.EqualFold(field[:len(scheme)], scheme) {
		return "", false
	}
	rest := field[len(scheme):]
	if rest == "" {
		return "", true
	}
	if rest[0] != ' ' && rest[0] != '\t' {
		return "", false // another scheme, with a longer name
	}
	return strings.Trim(rest, " \t"), true
}
