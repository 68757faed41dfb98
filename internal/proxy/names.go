package proxy

import (
	"bytes"

	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/http1"
)

// Runs copies the forwarded fields of a head in runs of consecutive unchanged bytes.
type Runs struct {
	Dst  []byte // what was copied so far
	buf  []byte
	from int // where the current run begins, or -1 if there is none
}

// RunsOf returns Runs that append to dst lines of the head in buf.
func RunsOf(dst, buf []byte) Runs { return Runs{Dst: dst, buf: buf, from: -1} }

// Keep adds the field whose line begins at start to the current run.
func (r *Runs) Keep(start uint32) {
	if r.from < 0 {
		r.from = int(start)
	}
}

// Cut ends the current run before the line that begins at start.
func (r *Runs) Cut(start uint32) {
	if r.from >= 0 {
		r.Dst = append(r.Dst, r.buf[r.from:start]...)
		r.from = -1
	}
}

// ConnectionNames says which fields of a head its field Connection names.
type ConnectionNames struct {
	buf    []byte
	fields []http1.Field
	// found has the names of all fields in lower case, with true for names that Connection lists.
	// It is nil if the list is short: then the list is searched for each name.
	found map[string]bool
}

// shortConnection is the length in bytes up to which the values of Connection are searched once for
// each field. For longer values, this would take a second with the longest head.
const shortConnection = 256

// NamesOf returns the fields that Connection names. some is false if it names none.
func NamesOf(buf []byte, fields []http1.Field, some bool) ConnectionNames {
	n := ConnectionNames{buf: buf}
	if !some {
		return n
	}
	n.fields = fields
	size := 0
	for i := range fields {
		if fields[i].ID == http1.Connection {
			size += fields[i].Value.Len()
		}
	}
	if size > shortConnection {
		n.index()
	}
	return n
}

// index fills found.
func (n *ConnectionNames) index() {
	var lower []byte
	n.found = make(map[string]bool, len(n.fields))
	for i := range n.fields {
		lower = appendLower(lower[:0], n.fields[i].Name.Of(n.buf))
		n.found[string(lower)] = false
	}
	for i := range n.fields {
		if n.fields[i].ID != http1.Connection {
			continue
		}
		http1.EachElement(n.fields[i].Value.Of(n.buf), func(option []byte) bool {
			lower = appendLower(lower[:0], option)
			if _, isField := n.found[string(lower)]; isField {
				n.found[string(lower)] = true
			}
			return true
		})
	}
}

// Has reports whether Connection names f, and may.
func (n *ConnectionNames) Has(f *http1.Field) bool {
	if n.fields == nil || Unnameable.Has(f.ID) {
		return false
	}
	name := f.Name.Of(n.buf)
	if n.found != nil {
		var room [64]byte
		return n.found[string(appendLower(room[:0], name))]
	}
	for i := range n.fields {
		if n.fields[i].ID != http1.Connection {
			continue
		}
		for rest, more := n.fields[i].Value.Of(n.buf), true; more; {
			var option []byte
			option, rest, more = bytes.Cut(rest, []byte(","))
			if option = bytes.Trim(option, " \t"); len(option) == len(name) && bytes.EqualFold(option, name) {
				return true
			}
		}
	}
	return false
}

// appendLower appends b with its ASCII letters in lower case.
func appendLower(dst, b []byte) []byte {
	start := len(dst)
	dst = append(dst, b...)
	for i, c := range dst[start:] {
		if 'A' <= c && c <= 'Z' {
			dst[start+i] = c | 0x20
		}
	}
	return dst
}

// AppendTrailers appends the lines of a trailer section that may be forwarded. withheld lists the
// fields that the gateway sets itself.
func AppendTrailers(dst, section []byte, fields []http1.Field, response bool, withheld Withheld) []byte {
	EachTrailer(section, fields, response, withheld, func(f *http1.Field) {
		dst = append(append(dst, f.Name.Of(section)...), ": "...)
		dst = append(append(dst, f.Value.Of(section)...), "\r\n"...)
	})
	return dst
}

// EachTrailer calls yield with each field of a trailer section that may be forwarded, and reports
// whether there is one.
func EachTrailer(section []byte, fields []http1.Field, response bool, withheld Withheld, yield func(f *http1.Field)) (some bool) {
	for i := range fields {
		f := &fields[i]
		if mayTrail(f.Name.Of(section), f.ID, response, withheld) {
			some = true
			yield(f)
		}
	}
	return some
}

func mayTrail(name []byte, id http1.Name, response bool, withheld Withheld) bool {
	return MayTrail(Text(name), id, response) && !withheld.Has(Text(name))
}

// AppendTrailerNames appends a Trailer field with those names in the head's Trailer field
// that may be forwarded, if there are any.
func AppendTrailerNames(dst, buf []byte, fields []http1.Field, response bool, withheld Withheld) []byte {
	start := len(dst)
	dst = append(dst, "Trailer: "...)
	empty := len(dst)
	if dst = AppendTrailerList(dst, buf, fields, response, withheld); len(dst) == empty {
		return dst[:start]
	}
	return append(dst, "\r\n"...)
}

// AppendTrailerList appends the value of the field of AppendTrailerNames.
func AppendTrailerList(dst, buf []byte, fields []http1.Field, response bool, withheld Withheld) []byte {
	found := false
	for i := range fields {
		if fields[i].ID != http1.Trailer {
			continue
		}
		http1.EachElement(fields[i].Value.Of(buf), func(name []byte) bool {
			if !http1.IsToken(name) || !mayTrail(name, http1.NameOf(name), response, withheld) {
				return true
			}
			if found {
				dst = append(dst, ", "...)
			}
			dst, found = append(dst, name...), true
			return true
		})
	}
	return dst
}

// EachResponseField calls yield with each field of a response's head that is forwarded to the
// client, except the fields in drop, which the gateway sets itself, and those with the names in hidden. kept is the set of
// forwarded fields that have a Name.
func EachResponseField(head []byte, r *http1.Response, drop Fields, hidden Withheld, yield func(f *http1.Field)) (kept Fields) {
	fields := r.Fields()
	named, hides := NamesOf(head, fields, r.Named()), !hidden.IsEmpty()
	for i := range fields {
		f := &fields[i]
		if drop.Has(f.ID) || named.Has(f) || SetsSession(f, head) || hides && hidden.Has(Text(f.Name.Of(head))) {
			continue
		}
		kept |= 1 << f.ID
		yield(f)
	}
	return kept
}

// SetsSession reports whether a field of a response's head sets the cookie of a browser's session on the
// management API, which an upstream must not do.
func SetsSession(f *http1.Field, head []byte) bool {
	return f.ID == http1.SetCookie && cookie.SetsSession(Text(f.Value.Of(head)))
}

// AppendValues appends the values of all fields of one name, as one list.
func AppendValues(dst, buf []byte, fields []http1.Field, id http1.Name) []byte {
	found := false
	for i := range fields {
		if fields[i].ID != id || fields[i].Value.Len() == 0 {
			continue
		}
		if found {
			dst = append(dst, ", "...)
		}
		dst, found = append(dst, fields[i].Value.Of(buf)...), true
	}
	return dst
}

// ValueOf returns the value of the first field with the given name.
func ValueOf(buf []byte, fields []http1.Field, id http1.Name) []byte {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i].Value.Of(buf)
		}
	}
	return nil
}

// Loops reports whether a Via field names this instance.
func Loops(buf []byte, fields []http1.Field, instance string) bool {
	for i := range fields {
		if fields[i].ID == http1.Via && NamesInstance(Text(fields[i].Value.Of(buf)), instance) {
			return true
		}
	}
	return false
}
