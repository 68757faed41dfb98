package http1

import (
	"bytes"
	"errors"
)

// Limits on the heads of requests (contract, 4.5) and of responses (contract, 4.2).
const (
	MaxHead   = 64 << 10 // bytes, including the empty line that ends the head
	MaxTarget = 16 << 10 // bytes
	MaxFields = 100      // field lines, also the limit of a trailer section
	maxMethod = 32       // bytes; the longest registered method has 17

	MaxResponseHead   = 256 << 10 // bytes, including the empty line that ends the head
	MaxResponseFields = 512       // field lines
)

// The errors of the parsers, with the status of the response to such a request. After any
// of them the connection cannot be reused, because it is unknown where the next message
// begins.
var (
	ErrSyntax       = errors.New("http1: malformed message")          // 400
	ErrTarget       = errors.New("http1: target too long")            // 414
	ErrHead         = errors.New("http1: head too large")             // 431
	ErrVersion      = errors.New("http1: version not supported")      // 505
	ErrUpgradeFirst = errors.New("http1: HTTP/2 without negotiation") // the preface of HTTP/2
)

// fields is the part that requests and responses have in common: the field lines, and
// what they say about the message.
type fields struct {
	list  [MaxFields]Field
	more  []Field // replaces list once there are more fields; nil before
	n     int
	limit int // the maximum of n

	length   int64 // Content-Length, -1 if absent
	chunked  bool  // Transfer-Encoding: chunked
	close    bool  // Connection: close
	keep     bool  // Connection: keep-alive
	upgrade  bool  // Connection: upgrade
	named    bool  // Connection names further options
	hosts    int   // number of Host fields
	expects  bool  // Expect: 100-continue
	trailers bool  // TE: trailers
}

func (f *fields) reset(limit int) {
	f.more, f.limit = nil, limit
	f.n, f.length, f.hosts = 0, -1, 0
	f.chunked, f.close, f.keep, f.upgrade, f.named, f.expects, f.trailers = false, false, false, false, false, false, false
}

// Fields returns the field lines in their order. The slice is valid until the next
// message is parsed into the same head.
func (f *fields) Fields() []Field {
	if f.more != nil {
		return f.more[:f.n]
	}
	return f.list[:f.n]
}

// ContentLength returns the value of Content-Length in bytes, and -1 if it is absent.
func (f *fields) ContentLength() int64 { return f.length }

// Chunked reports whether the body has the chunked transfer coding.
func (f *fields) Chunked() bool { return f.chunked }

// Upgrade reports whether Connection contains the option upgrade.
func (f *fields) Upgrade() bool { return f.upgrade }

// Named reports whether Connection contains options other than close, keep-alive and
// upgrade. They name fields that a proxy must remove (RFC 9110, 7.6.1).
func (f *fields) Named() bool { return f.named }

// ExpectsContinue reports whether the client waits for a 100 (Continue) response.
func (f *fields) ExpectsContinue() bool { return f.expects }

// WantsTrailers reports whether TE contains "trailers".
func (f *fields) WantsTrailers() bool { return f.trailers }

// lineScanner splits a growing buffer into lines.
type lineScanner struct {
	line int // index of the current line's first byte
	seen int // index up to which there is no line feed in the current line
}

// nextLine returns the current line, without its CRLF, once it is complete, and moves on
// to the next. The caller rejects a CR within the line, as it does any control byte.
func (s *lineScanner) nextLine(buf []byte) (line Span, done bool, err error) {
	i := bytes.IndexByte(buf[s.seen:], '\n')
	if i < 0 {
		// A CR can be part of a CRLF only as the last byte so far. Any other CR is an error
		// already, which waiting for the line's end would only delay.
		if j := bytes.IndexByte(buf[s.seen:], '\r'); j >= 0 && s.seen+j != len(buf)-1 {
			return Span{}, false, ErrSyntax
		}
		s.seen = max(s.seen, len(buf)-1)
		if len(buf) > 0 && buf[len(buf)-1] != '\r' {
			s.seen = len(buf)
		}
		return Span{}, false, nil
	}
	end := s.seen + i
	if end == s.line || buf[end-1] != '\r' {
		return Span{}, false, ErrSyntax
	}
	line = Span{uint32(s.line), uint32(end - 1)}
	s.line, s.seen = end+1, end+1
	return line, true, nil
}

// addField parses one field line of a head and interprets it.
func (f *fields) addField(buf []byte, line Span) error {
	field, err := f.parseField(buf, line)
	if err != nil || field.ID == Other {
		return err
	}
	return f.interpret(field.ID, field.Value.Of(buf))
}

// parseField parses one field line and appends it to the list (RFC 9112, 5).
func (f *fields) parseField(buf []byte, line Span) (*Field, error) {
	b := line.Of(buf)
	colon := 0
	for colon < len(b) && token[b[colon]] {
		colon++
	}
	// This rejects lines that begin with white space as well, whether obs-fold or a
	// space before the first field: a space is not a token byte.
	if colon == 0 || colon == len(b) || b[colon] != ':' {
		return nil, ErrSyntax
	}
	value := Span{line.Start + uint32(colon) + 1, line.End}
	if value.Start < value.End && buf[value.Start] == ' ' { // the usual case: exactly one space
		value.Start++
	}
	value = trim(buf, value)
	if !isFieldText(value.Of(buf)) {
		return nil, ErrSyntax
	}
	field := f.next()
	if field == nil {
		return nil, ErrHead
	}
	*field = Field{Name: Span{line.Start, line.Start + uint32(colon)}, Value: value, ID: classify(b[:colon])}
	return field, nil
}

// interpret records what a recognized field says about the message. It rejects
// repeated or invalid framing fields (contract, 4.5).
func (f *fields) interpret(id Name, value []byte) error {
	switch id {
	case ContentLength:
		n, ok := parseLength(value)
		if !ok || f.length >= 0 {
			return ErrSyntax
		}
		f.length = n
	case TransferEncoding:
		if f.chunked || !EqualFold(value, "chunked") {
			return ErrSyntax
		}
		f.chunked = true
	case Host:
		f.hosts++
	case Connection:
		EachElement(value, func(option []byte) bool {
			switch {
			case EqualFold(option, "close"):
				f.close = true
			case EqualFold(option, "keep-alive"):
				f.keep = true
			case EqualFold(option, "upgrade"):
				f.upgrade = true
			default:
				f.named = true
			}
			return true
		})
	case Expect:
		f.expects = f.expects || EqualFold(value, "100-continue")
	case TE:
		EachElement(value, func(coding []byte) bool {
			f.trailers = f.trailers || EqualFold(coding, "trailers")
			return true
		})
	}
	return nil
}

// checkFraming rejects a head with both Content-Length and Transfer-Encoding (RFC 9112,
// 6.1).
func (f *fields) checkFraming() error {
	if f.chunked && f.length >= 0 {
		return ErrSyntax
	}
	return nil
}

// version parses "HTTP/1.x" and returns the minor version.
func version(b []byte) (minor byte, err error) {
	if len(b) != len("HTTP/1.1") || string(b[:5]) != "HTTP/" || b[6] != '.' ||
		b[5] < '0' || b[5] > '9' || b[7] < '0' || b[7] > '9' {
		return 0, ErrSyntax
	}
	if b[5] != '1' {
		return 0, ErrVersion
	}
	return b[7] - '0', nil
}

// next returns a slot for one more field, or nil at the limit.
func (f *fields) next() *Field {
	if f.n == f.limit {
		return nil
	}
	if f.n == len(f.list) && f.more == nil {
		f.more = make([]Field, f.limit)
		copy(f.more, f.list[:])
	}
	f.n++
	if f.more != nil {
		return &f.more[f.n-1]
	}
	return &f.list[f.n-1]
}
