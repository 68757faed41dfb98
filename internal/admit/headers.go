package admit

import (
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// RequestEdits returns the header rules for the request that the upstream gets; nil if there are none.
func (v *Verdict) RequestEdits() *snapshot.Edits { return orNil(&v.requestEdits) }

// ResponseEdits returns the header rules for the upstream's response; nil if there are none.
func (v *Verdict) ResponseEdits() *snapshot.Edits { return orNil(&v.responseEdits) }

func orNil(e *snapshot.Edits) *snapshot.Edits {
	if e.Route == nil && e.Gateway == nil {
		return nil
	}
	return e
}

// EachHeader calls yield with each header that e sets, one of RequestEdits and ResponseEdits. requestID is the identifier of the request.
// A header with a variable that has no value is left out. value is valid until yield returns.
func (v *Verdict) EachHeader(e *snapshot.Edits, requestID string, yield func(name, value string)) {
	if e == nil {
		return
	}
	var room []byte
	for h := range e.Set {
		if len(h.Parts) == 1 && h.Parts[0].Variable == "" {
			yield(h.Name, h.Parts[0].Text)
			continue
		}
		value, whole := room[:0], true
		for i := range h.Parts {
			if p := &h.Parts[i]; p.Variable == "" {
				value = append(value, p.Text...)
			} else if value, whole = v.appendVariable(value, p.Variable, requestID); !whole {
				break
			}
		}
		if room = value; whole {
			yield(h.Name, string(value))
		}
	}
}

// appendVariable appends the value of a variable, so encoded that it is a part of one value of a header whatever it has. ok is false if it
// has none.
func (v *Verdict) appendVariable(dst []byte, variable gateway.HeaderVariable, requestID string) (_ []byte, ok bool) {
	start := len(dst)
	switch variable {
	case gateway.RequestIDVariable:
		dst = append(dst, requestID...)
	case gateway.KeyIDVariable:
		if v.Caller.Kind() == snapshot.KeyCaller {
			dst = v.Caller.AppendID(dst)
		}
	case gateway.OwnerVariable:
		dst = appendEncoded(dst, v.Caller.Owner())
	case gateway.SubjectVariable:
		dst = appendEncoded(dst, v.subject())
	case gateway.ClientIPVariable:
		if v.client.IsValid() {
			dst = appendEncoded(dst, v.client.String())
		}
	case gateway.GatewayIDVariable:
		dst = append(dst, v.Gateway.ID...)
	}
	return dst, len(dst) > start
}

// subject returns the subject of the caller's token, as records have it: a long one, of which a message could have as many as it has
// variables, is its SHA-256. A key has none.
func (v *Verdict) subject() string {
	if v.Principal == nil {
		return ""
	}
	return v.Principal.RecordedSubject()
}

// appendEncoded appends text, with what is not visible ASCII, and what separates parts of values, percent-encoded.
func appendEncoded(dst []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ', c > '~', c == '%', c == '"', c == ',', c == ';':
			const digits = "0123456789ABCDEF"
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
