package cost

import "bytes"

// eventLines is where a reader is in the lines of text/event-stream. The zero value is the beginning of an event.
type eventLines struct {
	at   linePart
	data bool // the event has a line of data
	cr   bool // the last byte was a carriage return: a line feed belongs to it
}

// linePart is a part of a line.
type linePart uint8

const (
	lineStart   linePart = iota // and so many bytes of "data", up to 4
	afterColon  linePart = 4 + iota
	dataLine             // in data
	ignoredLine          // in anything else
)

const dataField = "data"

// readEvents reads a piece of text/event-stream. Events without a field of the rules are found without parsing as long as
// they are whole.
func (r *Reader) readEvents(b []byte) {
	f := r.program.filter
	c := candidateIn(b)
	for i := 0; i < len(b); {
		if f == nil || r.lines != (eventLines{}) {
			i = r.readEvent(b, i)
			continue
		}
		if end, ok := r.known.skip(f, b, i, r.scanner.texts); ok {
			i = end
			continue
		}
		start := i
		next := f.next(b, i, &c, r.scanner.texts)
		if i = lastBoundary(b, i, next); i > start {
			r.known.learn(f, b[start:i], r.scanner.texts)
		}
		if i == len(b) {
			r.lines.cr = b[i-1] == '\r'
			return
		}
		i = r.readEvent(b, i)
	}
}

// known is how the events of a stream are alike: the bytes with which they begin and in which no field is, so that only
// the rest must be searched; and, after a text that differs, the bytes with which they end, so that nothing must be. It is
// learned from the events.
type known struct {
	start, end int // lengths; 0 for none
	misses     int
	startBytes [512]byte
	endBytes   [256]byte
}

const (
	minStart  = 32      // bytes that pay
	maxRest   = 4 << 10 // bytes in which a line break is looked for, so that streams without one are read in linear time
	maxMisses = 8       // starts that are learned in vain
)

// skip returns the end of the event that begins at i, if it begins as k knows it and has no field.
func (k *known) skip(f *filter, b []byte, i int, texts []textSlot) (end int, ok bool) {
	if k.start == 0 || len(b)-i <= k.start || !bytes.Equal(b[i:i+k.start], k.startBytes[:k.start]) {
		return 0, false
	}
	rest := i + k.start
	quote := rest + plain(b[rest:])
	if k.end > 0 && len(b)-quote >= k.end && bytes.Equal(b[quote:quote+k.end], k.endBytes[:k.end]) {
		return quote + k.end, true
	}
	line := bytes.IndexByte(b[rest:min(len(b), rest+maxRest)], '\n')
	if line < 0 {
		return 0, false
	}
	line += rest
	end = line + 1
	if end < len(b) && b[end] == '\r' {
		end++
	}
	if end >= len(b) || b[end] != '\n' { // lines that end in a lone carriage return are not looked for
		return 0, false
	}
	end++
	c := candidateIn(b[:line])
	if f.next(b[:line], max(i, rest-f.longest), &c, texts) < line {
		return 0, false
	}
	if !f.slash {
		k.learnEnd(b[quote:end])
	}
	return end, true
}

// learnEnd learns b, the end of an event after the start and what follows that up to a quote. If another event has the
// same start and end, and between them neither quotes nor escapes, then a name in quotes that it has more can only end in
// the first quote of b. That is no name if no colon follows.
func (k *known) learnEnd(b []byte) {
	k.end = 0
	if b[0] != '"' || len(b) > len(k.endBytes) {
		return
	}
	if next := bytes.TrimLeft(b[1:], " \t")[0]; next != ':' && next >= ' ' { // b has a line break at its end
		k.end = copy(k.endBytes[:], b)
	}
}

// learn learns from b, which begins with an event and has no field.
func (k *known) learn(f *filter, b []byte, texts []textSlot) {
	if k.misses > maxMisses {
		return
	}
	same := 0
	for same < k.start && same < len(b) && k.startBytes[same] == b[same] {
		same++
	}
	if same < minStart || same == k.start {
		k.misses++
		same = copy(k.startBytes[:], b)
	}
	// The text of a by may be cut now: then the start ends before it.
	c := candidateIn(k.startBytes[:same])
	k.start, k.end = f.next(k.startBytes[:same], 0, &c, texts), 0
}

// forget forgets everything: the text of a by has changed, or there is another response.
func (k *known) forget() { k.start, k.end = 0, 0 }

// lastBoundary returns where the last event begins that begins after from and not after end, or from.
func lastBoundary(b []byte, from, end int) int {
	for j := end - 1; j > from; j-- {
		switch {
		case b[j] == '\n' && b[j-1] == '\n':
			return j + 1
		case b[j] == '\r' && (b[j-1] == '\n' || b[j-1] == '\r'):
			if j+1 < len(b) && b[j+1] == '\n' {
				j++
			}
			return j + 1
		}
	}
	return from
}

// readEvent reads b from i on to the end of an event, which it returns.
func (r *Reader) readEvent(b []byte, i int) int {
	l := &r.lines
	for i < len(b) {
		c := b[i]
		if l.cr {
			if l.cr = false; c == '\n' {
				i++
				continue
			}
		}
		if c == '\n' || c == '\r' {
			i++
			l.cr = c == '\r'
			if l.at == lineStart {
				r.endEvent()
				if l.cr && i < len(b) && b[i] == '\n' {
					l.cr = false
					i++
				}
				return i
			}
			if l.at == lineStart+linePart(len(dataField)) {
				r.beginData()
			}
			l.at = lineStart
			continue
		}
		switch {
		case l.at == dataLine || l.at == ignoredLine:
			end := lineEnd(b, i)
			if l.at == dataLine && !r.scanner.broken {
				r.scanner.scan(b[i:end])
			}
			i = end
			continue
		case l.at == afterColon:
			if l.at = dataLine; c != ' ' {
				continue
			}
		case int(l.at) < len(dataField) && c == dataField[l.at]:
			l.at++
		case int(l.at) == len(dataField) && c == ':':
			r.beginData()
			l.at = afterColon
		default:
			l.at = ignoredLine
		}
		i++
	}
	return i
}

// beginData begins a line of data.
func (r *Reader) beginData() {
	if r.lines.data {
		r.scanner.scan([]byte{'\n'})
	}
	r.lines.data = true
}

// endEvent ends an event. What it has counts if it is one JSON object.
func (r *Reader) endEvent() {
	if r.scanner.finish() {
		if r.scanner.commit(r.program) {
			r.known.forget()
		}
	} else {
		r.scanner.discard()
	}
	r.scanner.reset()
	r.lines.data = false
}

// lineEnd returns the position of the first line break of b from i on, or len(b). It looks for both kinds of breaks in one
// window after the other, so that lines that all end in the same kind are read in linear time.
func lineEnd(b []byte, i int) int {
	for size := 256; i < len(b); i += size {
		window := b[i:min(len(b), i+size)]
		end := len(window)
		if j := bytes.IndexByte(window, '\n'); j >= 0 {
			end = j
		}
		if j := bytes.IndexByte(window[:end], '\r'); j >= 0 {
			end = j
		}
		if end < len(window) {
			return i + end
		}
	}
	return len(b)
}
