package http2

import (
	"bytes"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2/hpack"
)

// A tag is what the decoder remembers about a field in a table, so that a repeated field is checked
// once:
//
//	bits 0–5    http1.Name
//	bits 6–9    pseudo, or 0 for a field
//	bits 10–12  defect, or 0 for a valid field
const (
	tagName   = 1<<6 - 1
	tagPseudo = 6
	tagDefect = 10
)

// pseudo identifies a pseudo-header field (RFC 9113, 8.3).
type pseudo uint8

const (
	pseudoMethod pseudo = iota + 1
	pseudoScheme
	pseudoAuthority
	pseudoPath
	pseudoProtocol
	pseudoStatus
	pseudoUnknown
)

// defect is why a field makes a message malformed.
type defect uint8

const (
	badName defect = iota + 1
	badValue
	badConnection
	badTE
	badPseudo
)

// The reasons of malformed messages.
const (
	errName       MalformedError = "invalid field name"
	errValue      MalformedError = "invalid field value"
	errConnection MalformedError = "connection-specific field"
	errTE         MalformedError = "TE with another value than trailers"
	errPseudo     MalformedError = "invalid pseudo-header field"
	errLate       MalformedError = "pseudo-header field after a field"
	errTwice      MalformedError = "repeated pseudo-header field"
	errMissing    MalformedError = "missing or superfluous pseudo-header field"
	errHost       MalformedError = "Host and :authority differ"
	errLength     MalformedError = "invalid Content-Length"
	errConnect    MalformedError = "Content-Length of a CONNECT"
	errStatus     MalformedError = "interim response that ends the stream"
)

var defects = [...]MalformedError{ //nolint:gochecknoglobals // a table that is never written
	badName: errName, badValue: errValue, badConnection: errConnection, badTE: errTE, badPseudo: errPseudo,
}

// fieldTags are shared by all decoders.
var fieldTags = hpack.NewTags(tagOf) //nolint:gochecknoglobals // a table that is never written

// tagOf checks a field by itself (RFC 9113, 8.2 and 8.3).
func tagOf(name, value []byte) uint16 {
	if len(name) > 0 && name[0] == ':' {
		p, ok := pseudoOf(name, value)
		if !ok {
			return uint16(p)<<tagPseudo | uint16(badPseudo)<<tagDefect
		}
		return uint16(p) << tagPseudo
	}
	id := http1.NameOf(name)
	return uint16(id) | uint16(defectOf(name, value, id))<<tagDefect
}

func defectOf(name, value []byte, id http1.Name) defect {
	if !http1.IsToken(name) {
		return badName
	}
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			return badName
		}
	}
	if !http1.IsFieldText(value) || len(value) > 0 && (isSpace(value[0]) || isSpace(value[len(value)-1])) {
		return badValue
	}
	switch id {
	case http1.Connection, http1.ProxyConnection, http1.KeepAlive, http1.TransferEncoding, http1.Upgrade:
		return badConnection
	case http1.TE:
		if !http1.EqualFold(value, "trailers") {
			return badTE
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// maxMethod is the maximum length of a method in bytes, as over HTTP/1.1.
const maxMethod = 32

// pseudoOf identifies a pseudo-header field and reports whether it is valid by itself.
func pseudoOf(name, value []byte) (p pseudo, ok bool) {
	switch string(name) {
	case ":method":
		return pseudoMethod, http1.IsToken(value) && len(value) <= maxMethod
	case ":scheme":
		return pseudoScheme, string(value) == "http" || string(value) == "https"
	case ":authority":
		return pseudoAuthority, len(value) > 0 && http1.IsTargetText(value) && bytes.IndexByte(value, '@') < 0
	case ":path":
		return pseudoPath, len(value) > 0 && (value[0] == '/' || string(value) == "*") && http1.IsTargetText(value)
	case ":protocol":
		return pseudoProtocol, http1.IsToken(value)
	case ":status":
		return pseudoStatus, statusOf(value) != 0
	}
	return pseudoUnknown, false
}

// statusOf returns the status code in b, or 0 if HTTP/2 does not have it, as it does not have 101.
func statusOf(b []byte) int {
	if len(b) != 3 || string(b) == "101" {
		return 0
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	if n < 100 || n > 599 {
		return 0
	}
	return n
}
