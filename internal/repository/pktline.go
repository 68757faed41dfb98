package repository

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// pktKind says what a packet line is (gitprotocol-common(5), gitprotocol-v2(5)).
type pktKind uint8

const (
	pktData pktKind = iota
	pktFlush
	pktDelim
	pktEnd
)

// maxPkt is the longest packet line, its length included.
const maxPkt = 65520

// pktReader reads packet lines from a server.
type pktReader struct {
	r   *bufio.Reader
	buf [maxPkt]byte
}

func newPktReader(r io.Reader) *pktReader { return &pktReader{r: bufio.NewReaderSize(r, 32<<10)} }

var errPkt = errors.New("a packet line is malformed")

// next returns the next packet line. The data is valid until the next call. At the end of the
// stream the error is io.EOF.
func (p *pktReader) next() (pktKind, []byte, error) {
	head := p.buf[:4]
	if _, err := io.ReadFull(p.r, head); err != nil {
		return 0, nil, err // io.EOF only before the first byte
	}
	n := 0
	for _, c := range head {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | int(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | int(c|0x20-'a'+10)
		default:
			return 0, nil, errPkt
		}
	}
	switch n {
	case 0:
		return pktFlush, nil, nil
	case 1:
		return pktDelim, nil, nil
	case 2:
		return pktEnd, nil, nil
	}
	if n < 4 || n > maxPkt {
		return 0, nil, errPkt
	}
	data := p.buf[:n-4]
	if _, err := io.ReadFull(p.r, data); err != nil {
		return 0, nil, noEOF(err)
	}
	if text, failed := strings.CutPrefix(string(data[:min(len(data), 1024)]), "ERR "); failed {
		return 0, nil, &serverError{text}
	}
	return pktData, data, nil
}

// line is next for a line of text, without its end.
func (p *pktReader) line() (pktKind, string, error) {
	kind, data, err := p.next()
	return kind, strings.TrimSuffix(string(data), "\n"), err
}

// noEOF returns io.ErrUnexpectedEOF for io.EOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// serverError is an error that the server reports in words of its own.
type serverError struct{ text string }

func (e *serverError) Error() string { return "the server reports: " + e.text }

// appendPkt appends a packet line with a text.
func appendPkt(dst []byte, text string) []byte { return fmt.Appendf(dst, "%04x%s", len(text)+4, text) }

const (
	flushPkt = "0000"
	delimPkt = "0001"
)

// sideband reads the first channel of a multiplexed stream: the pack. The second channel, progress,
// is dropped; the third ends the stream with an error.
type sideband struct {
	p    *pktReader
	rest []byte
	err  error
}

func (s *sideband) Read(b []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		kind, data, err := s.p.next()
		switch {
		case err != nil:
			s.err = noEOF(err)
		case kind != pktData:
			s.err = io.EOF
		case len(data) == 0:
			s.err = errPkt
		case data[0] == 1:
			s.rest = data[1:]
		case data[0] == 3:
			s.err = &serverError{string(data[1:min(len(data), 1024)])}
		case data[0] != 2:
			s.err = errPkt
		}
	}
	if len(s.rest) > 0 {
		n := copy(b, s.rest)
		s.rest = s.rest[n:]
		return n, nil
	}
	return 0, s.err
}
