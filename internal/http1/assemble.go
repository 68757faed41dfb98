package http1

import "slices"

// Assembler builds a head from fields that did not arrive as HTTP/1.1 text, such as fields of
// HTTP/2. The head has the form that the parsers give it: spans into a text whose field lines stand
// one after the other and end with an empty line.
//
// The caller puts the part before the fields at the beginning of the text. It has checked that
// names are tokens, and values field text without white space around them.
type Assembler struct {
	Text []byte // so far

	fields   *fields
	max      int  // maximum length of Text
	trailers bool // fields have no effect on framing
	cookie   int  // index of the field Cookie + 1
}

// emptyLine ends a head.
const emptyLine = "\r\n"

// Assemble begins to build r, whose fields have room for n bytes, the empty line at the end
// included.
func (r *Request) Assemble(text []byte, n int) Assembler {
	r.reset(MaxFields)
	r.Method, r.Target, r.Minor = Span{}, Span{}, 1
	return Assembler{Text: text, fields: &r.fields, max: len(text) + n}
}

// Assemble begins to build r, as for a Request.
func (r *Response) Assemble(text []byte, n int) Assembler {
	r.reset(MaxResponseFields)
	r.Status, r.Line, r.Reason, r.Minor = 0, Span{}, Span{}, 1
	return Assembler{Text: text, fields: &r.fields, max: len(text) + n}
}

// Assemble begins to build t, as for a Request.
func (t *Trailers) Assemble(text []byte, n int) Assembler {
	t.reset(MaxFields)
	return Assembler{Text: text, fields: &t.fields, max: len(text) + n, trailers: true}
}

// Add adds a field with the ID of its name. The errors are the same as from the parsers.
func (a *Assembler) Add(name, value []byte, id Name, sensitive bool) error {
	if len(name)+len(value)+len(": \r\n")+len(emptyLine) > a.max-len(a.Text) {
		return ErrHead
	}
	field := a.fields.next()
	if field == nil {
		return ErrHead
	}
	start := uint32(len(a.Text))
	middle := start + uint32(len(name))
	end := middle + uint32(len(": ")+len(value))
	a.Text = append(append(append(append(a.Text, name...), ": "...), value...), "\r\n"...)
	*field = Field{Name: Span{start, middle}, Value: Span{middle + uint32(len(": ")), end}, ID: id, Sensitive: sensitive}
	if a.trailers || id == Other {
		return nil
	}
	return a.fields.interpret(id, value)
}

// AddCookie adds a field Cookie, or adds the value to the existing one, because HTTP/1.1 allows
// only one (RFC 9113, 8.2.3).
func (a *Assembler) AddCookie(name, value []byte, sensitive bool) error {
	if a.cookie == 0 {
		err := a.Add(name, value, Cookie, sensitive)
		a.cookie = a.fields.n
		return err
	}
	if len("; ")+len(value)+len(emptyLine) > a.max-len(a.Text) {
		return ErrHead
	}
	if a.cookie != a.fields.n {
		a.moveToEnd(a.cookie - 1)
		a.cookie = a.fields.n
	}
	a.Text = append(a.Text[:len(a.Text)-len("\r\n")], "; "...)
	a.Text = append(append(a.Text, value...), "\r\n"...)
	field := &a.fields.Fields()[a.cookie-1]
	field.Value.End = uint32(len(a.Text) - len("\r\n"))
	field.Sensitive = field.Sensitive || sensitive
	return nil
}

// moveToEnd makes a field the last one. It is called at most once for each added field, because it
// moves a field only after another was added behind it.
func (a *Assembler) moveToEnd(i int) {
	list := a.fields.Fields()
	field := list[i]
	start, end := field.Name.Start, field.Value.End+uint32(len("\r\n"))
	length := end - start
	a.Text = append(a.Text, a.Text[start:end]...)
	a.Text = a.Text[:int(start)+copy(a.Text[start:], a.Text[end:])]
	for j := i; j < len(list)-1; j++ {
		f := list[j+1]
		list[j] = Field{
			Name:  Span{f.Name.Start - length, f.Name.End - length},
			Value: Span{f.Value.Start - length, f.Value.End - length}, ID: f.ID, Sensitive: f.Sensitive,
		}
	}
	moved := uint32(len(a.Text)) - length - start
	list[len(list)-1] = Field{
		Name:  Span{field.Name.Start + moved, field.Name.End + moved},
		Value: Span{field.Value.Start + moved, field.Value.End + moved}, ID: field.ID, Sensitive: field.Sensitive,
	}
}

// End ends the text and returns its length, which is the End of the head.
func (a *Assembler) End() int {
	a.Text = append(a.Text, emptyLine...)
	return len(a.Text)
}

// SetUnknownLength says that a body follows whose length is unknown, as with the chunked
// transfer coding.
func (f *fields) SetUnknownLength() { f.chunked = true }

// SetNoBody says that no body follows after all.
func (f *fields) SetNoBody() { f.chunked = false }

// SetUpgrade says that the request asks for the protocol in its field Upgrade, as with
// "Connection: upgrade".
func (r *Request) SetUpgrade() { r.upgrade = true }

// Copy makes r a copy of from. The spans of r refer to the same text, or to a copy of it.
func (r *Response) Copy(from *Response) {
	r.fields.copy(&from.fields)
	r.Status, r.Line, r.Reason, r.Minor, r.End = from.Status, from.Line, from.Reason, from.Minor, from.End
}

// Copy makes t a copy of from. The spans of t refer to the same text, or to a copy of it.
func (t *Trailers) Copy(from *Trailers) {
	t.fields.copy(&from.fields)
	t.End = from.End
}

// copy copies the fields that were set, not the whole array.
func (f *fields) copy(from *fields) {
	f.reset(from.limit)
	f.n = from.n
	if from.more != nil {
		f.more = slices.Clone(from.more)
	} else {
		copy(f.list[:], from.list[:from.n])
	}
	f.length, f.hosts = from.length, from.hosts
	f.chunked, f.close, f.keep, f.upgrade = from.chunked, from.close, from.keep, from.upgrade
	f.named, f.expects, f.trailers = from.named, from.expects, from.trailers
}
