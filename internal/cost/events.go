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

// knownStart is the bytes with which events of a stream begin and in which no field is, so that only the rest of such an
// event must be searched. It is learned from the events.
type knownStart struct {
	length int
	misses int
	bytes  [512]byte
}

const (
	minKnown  = 32      // bytes that pay
	maxRest   = 4 << 10 // bytes in which a line break is looked for, so that streams without one are read in linear time
	maxMisses = 8       // starts that are learned in vain
)

// skip returns the end of the event that begins at i, if it begins with k and has no field.
func (k *knownStart) skip(f *filter, b []byte, i int, texts []textSlot) (end int, ok bool) {
	if k.length == 0 || len(b)-i <= k.length || !bytes.Equal(b[i:i+k.length], k.bytes[:k.length]) {
		return 0, false
	}
	rest := i + k.length
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
	c := candidateIn(b[:line])
	from := max(i, rest-f.longest)
	if f.next(b[:line], from, &c, texts) < line {
		return 0, false
	}
	return end + 1, true
}

// learn learns from b, which begins with an event and has no field.
func (k *knownStart) learn(f *filter, b []byte, texts []textSlot) {
	if k.misses > maxMisses {
		return
	}
	same := 0
	for same < k.length && same < len(b) && k.bytes[same] == b[same] {
		same++
	}
	if same < minKnown || same == k.length {
		k.misses++
		same = copy(k.bytes[:], b)
	}
	// The text of a by may be cut now: then the start ends before it.
	c := candidateIn(k.bytes[:same])
	k.length = f.next(k.bytes[:same], 0, &c, texts)
}

// forget forgets the start: the text of a by has changed.
func (k *knownStart) forget() { k.length = 0 }

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

// lineEnd returns the position of the first line break of b from i on, or len(b).
func lineEnd(b []byte, i int) int {
	end := len(b)
	if j := bytes.IndexByte(b[i:], '\n'); j >= 0 {
		end = i + j
	}
	if j := bytes.IndexByte(b[i:end], '\r'); j >= 0 {
		end = i + j
	}
	return end
}
