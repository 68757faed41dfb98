package cost

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how deeply paths lead. What nests deeper is skipped, and only its strings and brackets are parsed.
	maxDepth = 64
	maxValue = 1 << 10 // bytes of a value that a path leads to
)

// scanner is a parser of JSON values, one after the other. It is incremental: input may be cut anywhere. It hands what
// the paths of a program lead to to its slots.
type scanner struct {
	program *Program
	event   bool // the input is one object, and nothing else
	state   state
	broken  bool // the input is not JSON
	depth   int
	deep    int   // open brackets below maxDepth
	child   int32 // the node of the value that is read or comes next
	name    bool  // the string is a name
	capture bool  // the string or number is wanted

	literal string // what is left of true, false or null
	escaped rune   // the digits of an escape so far
	digits  int    // how many there were
	high    rune   // a high surrogate that waits for the low one

	length int // of the text in buffer; maxValue+1 if it is longer
	buffer [maxValue]byte
	stack  [maxDepth + 1]frame

	slots
}

// frame is an open object or array.
type frame struct {
	node  int32
	array bool
	lines bool // the array is at the top: its elements count as lines
}

type state uint8

const (
	atTop         state = iota // a value may begin
	atEnd                      // the value of an event has ended
	atValue                    // a value must begin
	atFirstValue               // in an array: a value, or its end
	atFirstName                // in an object: a name, or its end
	atName                     // a name must begin
	atColon                    // after a name
	afterValue                 // after a value
	inText                     // in a string
	inEscape                   // after a backslash
	inHex                      // in the digits of \u
	inLiteral                  // in true, false or null
	afterMinus                 // numbers: after -
	afterZero                  // after a leading 0
	inWhole                    // in digits
	afterDot                   // after the dot
	inFraction                 // in decimals
	afterExponent              // after e
	afterSign                  // after its sign
	inPower                    // in its digits
	inDeep                     // below maxDepth
	inDeepText                 // in a string there
	inDeepEscape               // after a backslash there
)

// reset prepares s for the next event or response.
func (s *scanner) reset() {
	s.state, s.broken, s.depth = atTop, false, 0
}

// isBetween reports whether s is between values.
func (s *scanner) isBetween() bool { return s.state == atTop || s.state == atEnd }

// finish ends the input. It reports whether no value was cut. A number may end with it if it is the whole value.
func (s *scanner) finish() bool {
	if s.depth == 0 && (s.state == afterZero || s.state == inWhole || s.state == inFraction || s.state == inPower) {
		s.state = atTop
	}
	return !s.broken && s.isBetween()
}

// scan parses b. After an error it is broken, and parses nothing more.
func (s *scanner) scan(b []byte) {
	for i := 0; i < len(b) && !s.broken; {
		c := b[i]
		switch s.state {
		case inText:
			i = s.scanText(b, i)
			continue
		case atColon:
			switch {
			case c == ':':
				s.state = atValue
			case !isSpace(c):
				s.broken = true
			}
		case atTop, atEnd, atValue, atFirstValue:
			switch {
			case isSpace(c):
			case s.state == atEnd || s.event && s.state == atTop && c != '{':
				s.broken = true
			case c == ']' && s.state == atFirstValue:
				s.pop()
			default:
				if s.state == atTop {
					s.child = theRoot
				}
				s.begin(c)
			}
		case atFirstName, atName:
			switch {
			case c == '"':
				s.state, s.name, s.length, s.high = inText, true, 0, 0
				s.capture = s.stack[s.depth].node != noNode
			case c == '}' && s.state == atFirstName:
				s.pop()
			case !isSpace(c):
				s.broken = true
			}
		case afterValue:
			f := &s.stack[s.depth]
			switch {
			case c == ',' && f.array:
				s.state, s.child = atValue, f.node
			case c == ',':
				s.state = atName
			case c == '}' && !f.array || c == ']' && f.array:
				s.pop()
			case !isSpace(c):
				s.broken = true
			}
		case inEscape:
			s.scanEscape(c)
		case inHex:
			s.scanHex(c)
		case inLiteral:
			s.scanLiteral(c)
		case inDeep, inDeepText, inDeepEscape:
			s.scanDeep(c)
		default:
			i = s.scanNumber(b, i)
			continue
		}
		i++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// begin begins the value of the node child, with its first byte.
func (s *scanner) begin(c byte) {
	n := &s.program.nodes[s.child]
	s.capture = n.number != noSlot || n.text != noSlot
	s.length = 0
	switch c {
	case '"':
		s.state, s.name, s.high = inText, false, 0
	case '{':
		s.push(frame{node: s.child}, atFirstName)
	case '[':
		if s.depth == 0 && !s.event {
			s.push(frame{node: theRoot, array: true, lines: true}, atFirstValue)
			s.child = theRoot
		} else {
			s.push(frame{array: true}, atFirstValue)
			s.child = noNode
		}
	case 't':
		s.state, s.literal = inLiteral, "true"[1:]
		s.keep('t')
	case 'f':
		s.state, s.literal = inLiteral, "false"[1:]
		s.keep('f')
	case 'n':
		s.state, s.literal = inLiteral, "null"[1:]
		s.keep('n')
	case '-':
		s.state = afterMinus
		s.keep(c)
	case '0':
		s.state = afterZero
		s.keep(c)
	default:
		if c < '1' || c > '9' {
			s.broken = true
			return
		}
		s.state = inWhole
		s.keep(c)
	}
}

// push opens an object or array.
func (s *scanner) push(f frame, next state) {
	if s.capture {
		s.setOther(s.program, s.child)
	}
	if s.depth == maxDepth {
		s.state, s.deep = inDeep, 1
		return
	}
	s.depth++
	s.stack[s.depth] = f
	s.state = next
}

// pop closes an object or array.
func (s *scanner) pop() {
	s.depth--
	s.end()
}

// end ends a value.
func (s *scanner) end() {
	switch {
	case s.depth > 0:
		if s.state = afterValue; s.stack[s.depth].lines {
			s.commit(s.program)
		}
	case s.event:
		s.state = atEnd
	default:
		s.state = atTop
		s.commit(s.program)
	}
}

// keep adds a byte to the text of a value that is wanted.
func (s *scanner) keep(c byte) {
	if s.capture && s.length < maxValue {
		s.buffer[s.length] = c
	}
	if s.length <= maxValue {
		s.length++
	}
}

// keepAll does what keep does.
func (s *scanner) keepAll(b []byte) {
	if s.capture {
		if s.length < maxValue {
			copy(s.buffer[s.length:], b)
		}
		s.length = min(s.length+len(b), maxValue+1)
	}
}

// kept returns the text of the value, and whether it was not too long.
func (s *scanner) kept() ([]byte, bool) {
	return s.buffer[:min(s.length, maxValue)], s.length <= maxValue
}

// scanText parses a part of a string from i on, and returns where it ends.
func (s *scanner) scanText(b []byte, i int) int {
	j := i + plain(b[i:])
	if s.capture && (j > i || j < len(b) && b[j] == '"') && s.high != 0 {
		s.flushHigh()
	}
	if j == len(b) {
		s.keepAll(b[i:])
		return j
	}
	switch {
	case b[j] == '\\':
		s.keepAll(b[i:j])
		s.state = inEscape
	case b[j] < ' ':
		s.broken = true
	case s.capture && s.length == 0 && j-i <= maxValue:
		s.endText(b[i:j], true)
	default:
		s.keepAll(b[i:j])
		s.endText(s.kept())
	}
	return j + 1
}

// endText ends a string with its text, if that is wanted.
func (s *scanner) endText(content []byte, complete bool) {
	if !s.name {
		if s.capture {
			s.setText(s.program, s.child, content, complete)
		}
		s.end()
		return
	}
	s.state, s.child = atColon, noNode
	if s.capture && complete {
		if s.child = s.program.child(s.stack[s.depth].node, content); s.child != noNode {
			s.match(s.child)
		}
	}
}

func (s *scanner) scanEscape(c byte) {
	plain := c
	switch c {
	case 'u':
		s.state, s.escaped, s.digits = inHex, 0, 0
		return
	case 'b':
		plain = '\b'
	case 'f':
		plain = '\f'
	case 'n':
		plain = '\n'
	case 'r':
		plain = '\r'
	case 't':
		plain = '\t'
	case '"', '\\', '/':
	default:
		s.broken = true
		return
	}
	s.state = inText
	if s.capture {
		s.flushHigh()
		s.keep(plain)
	}
}

func (s *scanner) scanHex(c byte) {
	var d byte
	switch lower := c | 0x20; {
	case isDigit(c):
		d = c - '0'
	case 'a' <= lower && lower <= 'f':
		d = lower - 'a' + 10
	default:
		s.broken = true
		return
	}
	s.escaped = s.escaped<<4 | rune(d)
	if s.digits++; s.digits < 4 {
		return
	}
	s.state = inText
	if !s.capture {
		return
	}
	if s.high != 0 {
		if r := utf16.DecodeRune(s.high, s.escaped); r != utf8.RuneError {
			s.high = 0
			s.keepRune(r)
			return
		}
		s.flushHigh()
	}
	if 0xd800 <= s.escaped && s.escaped < 0xdc00 {
		s.high = s.escaped
		return
	}
	s.keepRune(s.escaped)
}

// flushHigh keeps the replacement of a high surrogate that no low one follows.
func (s *scanner) flushHigh() {
	if s.high != 0 {
		s.high = 0
		s.keepRune(utf8.RuneError)
	}
}

func (s *scanner) keepRune(r rune) {
	var encoded [utf8.UTFMax]byte
	s.keepAll(encoded[:utf8.EncodeRune(encoded[:], r)])
}

func (s *scanner) scanLiteral(c byte) {
	if c != s.literal[0] {
		s.broken = true
		return
	}
	s.keep(c)
	if s.literal = s.literal[1:]; s.literal != "" {
		return
	}
	if s.capture && s.buffer[0] != 'n' { // null is absent
		content, _ := s.kept()
		s.setLiteral(s.program, s.child, content)
	}
	s.end()
}

// scanNumber parses a part of a number from i on, and returns where it ends.
func (s *scanner) scanNumber(b []byte, i int) int {
	for ; i < len(b); i++ {
		c := b[i]
		switch s.state {
		case afterMinus:
			switch {
			case c == '0':
				s.state = afterZero
			case isDigit(c):
				s.state = inWhole
			default:
				s.broken = true
				return i
			}
		case afterZero, inWhole:
			switch {
			case isDigit(c) && s.state == inWhole:
			case c == '.':
				s.state = afterDot
			case c|0x20 == 'e':
				s.state = afterExponent
			default:
				s.endNumber()
				return i
			}
		case afterDot:
			if !isDigit(c) {
				s.broken = true
				return i
			}
			s.state = inFraction
		case inFraction:
			switch {
			case isDigit(c):
			case c|0x20 == 'e':
				s.state = afterExponent
			default:
				s.endNumber()
				return i
			}
		case afterExponent, afterSign:
			switch {
			case isDigit(c):
				s.state = inPower
			case (c == '+' || c == '-') && s.state == afterExponent:
				s.state = afterSign
			default:
				s.broken = true
				return i
			}
		default: // inPower
			if !isDigit(c) {
				s.endNumber()
				return i
			}
		}
		s.keep(c)
	}
	return i
}

func (s *scanner) endNumber() {
	if s.capture {
		content, complete := s.kept()
		s.setText(s.program, s.child, content, complete)
	}
	s.end()
}

func (s *scanner) scanDeep(c byte) {
	switch s.state {
	case inDeepEscape:
		s.state = inDeepText
	case inDeepText:
		switch c {
		case '"':
			s.state = inDeep
		case '\\':
			s.state = inDeepEscape
		}
	default:
		switch c {
		case '"':
			s.state = inDeepText
		case '[', '{':
			s.deep++
		case ']', '}':
			if s.deep--; s.deep == 0 {
				s.end()
			}
		}
	}
}

// plain returns how many bytes of b come before a quote, a backslash or a control character. It tests 8 at a time.
func plain(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		if found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (w-ones*' ')&^w) & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8 // the lowest bit is never a false one
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}
