package h1

import (
	"bytes"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
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

// namedByConnection reports whether Connection lists the field f.
func namedByConnection(buf []byte, fields []http1.Field, f *http1.Field) bool {
	if proxy.Unnameable.Has(f.ID) {
		return false
	}
	name := f.Name.Of(buf)
	for i := range fields {
		if fields[i].ID != http1.Connection {
			continue
		}
		for rest, more := fields[i].Value.Of(buf), true; more; {
			var option []byte
			option, rest, more = bytes.Cut(rest, []byte(","))
			if option = bytes.Trim(option, " \t"); len(option) == len(name) && bytes.EqualFold(option, name) {
				return true
			}
		}
	}
	return false
}

// appendTrailers appends the lines of a trailer section that may be forwarded. set lists
// the fields that the gateway sets itself.
func appendTrailers(dst, section []byte, fields []http1.Field, response bool, set []snapshot.Header) []byte {
	for i := range fields {
		f := &fields[i]
		if name := f.Name.Of(section); mayTrail(name, f.ID, response, set) {
			dst = append(append(dst, name...), ": "...)
			dst = append(append(dst, f.Value.Of(section)...), "\r\n"...)
		}
	}
	return dst
}

func mayTrail(name []byte, id http1.Name, response bool, set []snapshot.Header) bool {
	return proxy.MayTrail(proxy.Text(name), id, response) && !proxy.IsSet(set, proxy.Text(name))
}

// appendTrailerNames appends a Trailer field with those names in the head's Trailer field
// that may be forwarded, if there are any.
func appendTrailerNames(dst, buf []byte, fields []http1.Field, response bool, set []snapshot.Header) []byte {
	found := false
	for i := range fields {
		if fields[i].ID != http1.Trailer {
			continue
		}
		http1.EachElement(fields[i].Value.Of(buf), func(name []byte) bool {
			if !http1.IsToken(name) || !mayTrail(name, http1.NameOf(name), response, set) {
				return true
			}
			if found {
				dst = append(dst, ", "...)
			} else {
				dst, found = append(dst, "Trailer: "...), true
			}
			dst = append(dst, name...)
			return true
		})
	}
	if found {
		dst = append(dst, "\r\n"...)
	}
	return dst
}
