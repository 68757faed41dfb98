package http1

import (
	"bytes"
	"errors"
)

// The limits of a head (contract, 4.5).
const (
	MaxHead   = 64 << 10 // bytes, from the first to the empty line that ends it
	MaxTarget = 16 << 10 // bytes
	MaxFields = 100      // all counted
	maxMethod = 32       // bytes; the longest registered one has 17
)

// The errors of a message. After any of them the connection cannot be used
// again: where the next message begins is not known.
var (
	ErrSyntax       = errors.New("http1: malformed message")          // 400
	ErrTarget       = errors.New("http1: target too long")            // 414
	ErrHead         = errors.New("http1: head too large")             // 431
	ErrVersion      = errors.New("http1: version not supported")      // 505
	ErrUpgradeFirst = errors.New("http1: HTTP/2 without negotiation") // the preface of HTTP/2
)

// fields is the part that both kinds of heads share: the field lines and the
// framing that they declare.
type fields struct {
	list [MaxFields]Field
	n    int

	length   int64 // Content-Length, -1 without
	chunked  bool  // Transfer-Encoding: chunked
	close    bool  // Connection: close
	keep     bool  // Connection: keep-alive
	upgrade  bool  // Connection: upgrade
	named    bool  // Connection names other fields
	hosts    int
	expects  bool // Expect: 100-continue
	trailers bool // TE: trailers
}

func (f *fields) reset() {
	f.n, f.length, f.hosts = 0, -1, 0
	f.chunked, f.close, f.keep, f.upgrade, f.named, f.expects, f.trailers = false, false, false, false, false, false, false
}

// Fields returns the field lines in their order. They stay valid until the
// next message is parsed into the same head.
func (f *fields) Fields() []Field { return f.list[:f.n] }

// ContentLength returns the declared length of the body; -1 if none is.
func (f *fields) ContentLength() int64 { return f.length }

// Chunked reports whether the body is chunked.
func (f *fields) Chunked() bool { return f.chunked }

// Upgrade reports whether Connection names the option upgrade.
func (f *fields) Upgrade() bool { return f.upgrade }

// Named reports whether Connection names fields other than its own options, so
// that they are to be removed.
func (f *fields) Named() bool { return f.named }

// ExpectsContinue reports whether the client waits for a 100.
func (f *fields) ExpectsContinue() bool { return f.expects }

// WantsTrailers reports whether TE holds "trailers".
func (f *fields) WantsTrailers() bool { return f.trailers }

// scanner finds the lines of a head in a buffer that grows.
type scanner struct {
	line int // where the current line begins
	seen int // how far no line feed was found
}

// next returns the current line without its CRLF once it is complete. A CR
// within it is for whoever parses it to refuse, as every control byte is.
func (s *scanner) next(buf []byte) (line Span, done bool, err error) {
	i := bytes.IndexByte(buf[s.seen:], '\n')
	if i < 0 {
		// A CR may only be the last byte so far; one with a byte behind it
		// is bare, and waiting for more would only hide that.
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

// add parses one field line and notes what it declares.
func (f *fields) add(buf []byte, line Span) error {
	field, err := f.read(buf, line)
	if err != nil || field.ID == Other {
		return err
	}
	return f.note(field.ID, field.Value.Of(buf))
}

// read parses one field line (RFC 9112, 5).
func (f *fields) read(buf []byte, line Span) (*Field, error) {
	b := line.Of(buf)
	colon := 0
	for colon < len(b) && token[b[colon]] {
		colon++
	}
	// A line that begins with white space, be it obs-fold or a space before
	// the first field, fails here as well: a space is no token byte.
	if colon == 0 || colon == len(b) || b[colon] != ':' {
		return nil, ErrSyntax
	}
	value := Span{line.Start + uint32(colon) + 1, line.End}
	if value.Start < value.End && buf[value.Start] == ' ' { // nearly always, and alone
		value.Start++
	}
	value = trim(buf, value)
	if !isFieldText(value.Of(buf)) {
		return nil, ErrSyntax
	}
	if f.n == len(f.list) {
		return nil, ErrHead
	}
	field := &f.list[f.n]
	f.n++
	*field = Field{Name: Span{line.Start, line.Start + uint32(colon)}, Value: value, ID: classify(b[:colon])}
	return field, nil
}

// note keeps what a field says about the message.
func (f *fields) note(id Name, value []byte) error {
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

// framed checks what only the whole head tells.
func (f *fields) framed() error {
	if f.chunked && f.length >= 0 {
		return ErrSyntax
	}
	return nil
}

// version parses "HTTP/1.x". It returns the minor version.
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
