package cost

import "strings"

// MaxRead is how many bytes of a body are read, after gzip (plans.md, section 5; docs/limits.md).
const MaxRead = 16 << 20

// Reader finds the figures of one response while its body passes. It is for one goroutine at a time.
//
// It holds 3 KiB, 100 bytes for each path of the rules, and 600 for each path of by: at most 50 KiB. The first body in
// gzip adds 50 KiB, and each has a coroutine until Close.
type Reader struct {
	program *Program
	form    form
	reason  Reason // why the body cannot be read, or not to its end
	ended   bool
	left    int // of MaxRead
	packed  int // bytes of a compressed body that were decoded
	mark    int // bytes of a byte order mark that were read; afterMark when there can be none any more
	lines   eventLines
	known   known
	scanner scanner
	gzip    *gunzip // nil if the body is not compressed
	spare   *gunzip // for the next response that is
}

const (
	byteOrderMark = "\xef\xbb\xbf"
	afterMark     = len(byteOrderMark) + 1
)

// form is the form of a body.
type form uint8

const (
	formOther  form = iota // nothing can be read of it
	formJSON               // JSON values, one after the other
	formEvents             // text/event-stream
)

// formOf returns the form of a body with the Content-Type.
func formOf(contentType string) form {
	if i := strings.IndexByte(contentType, ';'); i >= 0 {
		contentType = contentType[:i]
	}
	contentType = trimSpace(contentType)
	is := func(types ...string) bool {
		for _, t := range types {
			if strings.EqualFold(t, contentType) {
				return true
			}
		}
		return false
	}
	const suffix = "+json"
	switch {
	case is("text/event-stream"):
		return formEvents
	case is("application/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines", "application/x-jsonlines"),
		len(contentType) > len(suffix) && is(contentType[:len(contentType)-len(suffix)]+suffix):
		return formJSON
	}
	return formOther
}

// Reader returns a Reader for the body of one response with the values of Content-Type and Content-Encoding, "" if
// absent. Close gives it back. It does not allocate if a reader of an earlier response is there.
func (p *Program) Reader(contentType, contentEncoding string) *Reader {
	r, ok := p.readers.Get().(*Reader)
	if !ok {
		r = &Reader{program: p}
		r.scanner.program = p
		r.scanner.init(p)
	}
	r.form, r.reason, r.ended, r.left, r.packed, r.mark, r.lines = formOf(contentType), None, false, MaxRead, 0, 0, eventLines{}
	r.known.forget()
	r.known.misses = 0
	r.scanner.reset()
	r.scanner.clear()
	r.scanner.event = r.form == formEvents
	switch encoding := trimSpace(contentEncoding); {
	case r.form == formOther, encoding == "", strings.EqualFold(encoding, "identity"):
	case strings.EqualFold(encoding, "gzip"), strings.EqualFold(encoding, "x-gzip"):
		if r.gzip = r.spare; r.gzip == nil {
			r.gzip = &gunzip{}
			r.spare = r.gzip
		}
	default:
		r.form, r.reason = formOther, Encoding
	}
	return r
}

// Close ends the reading and gives the reader back to its program. r must not be used after it.
func (r *Reader) Close() {
	if r.gzip != nil {
		r.gzip.close()
		r.gzip = nil
	}
	r.program.readers.Put(r)
}

// Write reads a piece of the body as it was received, still encoded. Pieces may be cut anywhere. It keeps nothing of b.
func (r *Reader) Write(b []byte) {
	switch {
	case len(b) == 0 || r.form == formOther || r.ended:
	case r.gzip != nil && r.isHollow():
		r.stop(TooLong)
	case r.gzip != nil:
		r.packed += len(b)
		r.gzip.write(r, b)
	default:
		r.read(b)
	}
}

// isHollow reports whether the compressed body is as long as a body may be, or decodes to much less than it has itself, as
// empty members and blocks do: decoding them takes time that no bound of what is decoded would end.
func (r *Reader) isHollow() bool {
	const some = 64 << 10
	return r.packed > MaxRead || r.packed > some && MaxRead-r.left < r.packed/2
}

// Bounds of what a compressed body may decode to (docs/limits.md). gzip makes up to 1,000 bytes of one; JSON and events take
// a fifth to a thirtieth of their size.
const (
	freeRead = 256 << 10 // bytes that may always be decoded
	maxRatio = 64        // bytes for each byte of the body beyond
)

// isInflated reports whether the compressed body has decoded to much more than it has itself: a few KB of it would take as
// much time as MaxRead bytes.
func (r *Reader) isInflated() bool { return MaxRead-r.left > freeRead+maxRatio*r.packed }

// read reads a piece of the decoded body. It reports whether there is more to read.
func (r *Reader) read(b []byte) bool {
	if r.form == formOther {
		return false
	}
	over := len(b) > r.left
	if over {
		b = b[:r.left]
	}
	r.left -= len(b)
	if r.mark != afterMark {
		b = r.skipMark(b)
	}
	if r.form == formEvents {
		r.readEvents(b)
	} else {
		r.scanner.scan(b)
	}
	switch {
	case r.scanner.broken && r.form == formJSON:
		r.stop(Invalid)
	case over:
		r.stop(TooLong)
	}
	return r.form != formOther
}

// skipMark skips a byte order mark at the beginning of the body.
func (r *Reader) skipMark(b []byte) []byte {
	for len(b) > 0 && r.mark < len(byteOrderMark) && b[0] == byteOrderMark[r.mark] {
		b = b[1:]
		r.mark++
	}
	if len(b) == 0 {
		return nil
	}
	if r.mark != 0 && r.mark != len(byteOrderMark) { // it was none
		r.scanner.broken = r.form == formJSON
		r.lines.at = ignoredLine
	}
	r.mark = afterMark
	return b
}

// stop ends the reading. What is pending counts as read so far.
func (r *Reader) stop(reason Reason) {
	r.reason, r.form = reason, formOther
	r.scanner.commit(r.program)
}

// end ends the body. It is idempotent.
func (r *Reader) end() {
	if r.ended {
		return
	}
	if r.gzip != nil {
		r.gzip.end(r)
	}
	r.ended = true
	switch {
	case r.form == formOther:
	case r.scanner.finish():
		r.stop(None)
	case r.form == formEvents && r.scanner.broken: // the last event is not JSON
		r.scanner.discard()
	default:
		r.stop(Invalid)
	}
}

// Figure returns what was read for the rule i, which has FromJSON. It ends the reading: Write must not be called after it.
func (r *Reader) Figure(i int) (f Figure) {
	r.end()
	var s sum
	over := false
	reason := reasons
	if r.reason != None {
		reason = r.reason
	}
	list, _ := r.operands(i)
	for j := range list {
		o := &list[j]
		at := r.latest(o)
		if at < 0 {
			if !o.optional {
				reason = min(reason, Missing)
			}
			continue
		}
		f.Read = true
		n := &r.scanner.numbers[o.slots[at]]
		switch {
		case n.reason == None:
			s.add(n.number, o.weight)
			continue
		case n.reason == TooLarge && o.weight > 0:
			over = true
		}
		reason = min(reason, n.reason)
	}
	units, ok := s.roundUp()
	if over || !ok {
		reason, units = min(reason, TooLarge), MaxUnits
	}
	if f.Units = units; reason == reasons {
		f.Known = true
	} else {
		f.Reason = reason
	}
	return f
}

// operands returns what counts of the rule i: the fields of the price that by selects, with its index, or those of json.
func (r *Reader) operands(i int) (list []operand, price int) {
	f := &r.program.figures[i]
	var last *textSlot
	for _, slot := range f.by {
		if t := &r.scanner.texts[slot]; t.unit > 0 && (last == nil || t.unit > last.unit) {
			last = t
		}
	}
	if last != nil && last.length != noText {
		if j, found := f.prices[string(last.content[:last.length])]; found {
			return f.values[j], j
		}
	}
	return f.fields, -1
}

// latest returns which path of a field the last unit has that has any of them, or -1.
func (r *Reader) latest(o *operand) int {
	at, unit := -1, uint64(0)
	for j, slot := range o.slots {
		if u := r.scanner.numbers[slot].unit; u > unit {
			at, unit = j, u
		}
	}
	return at
}

// Result returns what the request costs by the rule i, which has FromJSON. It ends the reading as Figure does.
func (r *Reader) Result(i int, e End) (units int64, reason Reason) {
	return r.program.rules[i].Settle(e, r.Figure(i))
}
