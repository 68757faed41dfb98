package h1

import (
	"bytes"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// runs copies the forwarded fields of a head in runs of consecutive unchanged bytes.
type runs struct {
	dst  []byte
	buf  []byte
	from int // where the current run begins, or -1 if there is none
}

// keep adds the field whose line begins at start to the current run.
func (r *runs) keep(start uint32) {
	if r.from < 0 {
		r.from = int(start)
	}
}

// cut ends the current run before the line that begins at start.
func (r *runs) cut(start uint32) {
	if r.from >= 0 {
		r.dst = append(r.dst, r.buf[r.from:start]...)
		r.from = -1
	}
}

// connectionNames says which fields of a head its field Connection names.
type connectionNames struct {
	buf    []byte
	fields []http1.Field
	// found has the names of all fields in lower case, true for those that Connection
	// lists. It is nil where the list is short: then each name is looked for in the list.
	found map[string]bool
}

// shortConnection is how long the values of Connection may be, in bytes, that are searched
// once for each field. Longer ones would take a second for the longest head.
const shortConnection = 256

// namesOf returns the fields that Connection names. some is false if it names none.
func namesOf(buf []byte, fields []http1.Field, some bool) connectionNames {
	n := connectionNames{buf: buf}
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
func (n *connectionNames) index() {
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

// has reports whether Connection names f, and may.
func (n *connectionNames) has(f *http1.Field) bool {
	if n.fields == nil || proxy.Unnameable.Has(f.ID) {
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

// appendTrailers appends the lines of a trailer section that may be forwarded. set lists
// the fields that the gateway sets itself.
func appendTrailers(dst, section []byte, fields []http1.Field, response bool, withheld []string) []byte {
	for i := range fields {
		f := &fields[i]
		if name := f.Name.Of(section); mayTrail(name, f.ID, response, withheld) {
			dst = append(append(dst, name...), ": "...)
			dst = append(append(dst, f.Value.Of(section)...), "\r\n"...)
		}
	}
	return dst
}

func mayTrail(name []byte, id http1.Name, response bool, withheld []string) bool {
	return proxy.MayTrail(proxy.Text(name), id, response) && !proxy.IsWithheld(withheld, proxy.Text(name))
}

// appendTrailerNames appends a Trailer field with those names in the head's Trailer field
// that may be forwarded, if there are any.
func appendTrailerNames(dst, buf []byte, fields []http1.Field, response bool, withheld []string) []byte {
	start := len(dst)
	dst = append(dst, "Trailer: "...)
	empty := len(dst)
	if dst = appendNames(dst, buf, fields, response, withheld); len(dst) == empty {
		return dst[:start]
	}
	return append(dst, "\r\n"...)
}

// appendNames appends the value of the field of appendTrailerNames.
func appendNames(dst, buf []byte, fields []http1.Field, response bool, withheld []string) []byte {
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
