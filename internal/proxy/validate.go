package proxy

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/validate"
	"github.com/keygate/keygate/internal/validation"
)

// Validates reports whether an admitted request is held against the OpenAPI document of its gateway before anything else is done with it
// (edge.md, section 6): the engine then calls BeginCheck, Check.Hold with the body as far as it is wanted, and EndCheck.
func (x *Exchange) Validates() bool {
	return x.Verdict.Checks.Document != nil && x.cfg.Checker != nil
}

// Head is the head of a request that is checked.
type Head struct {
	Fields []http1.Field
	Text   []byte // of which the fields are parts
	Named  bool   // Connection names some of them
}

// head are the fields of a head that an upstream gets. They are read while the check is running.
type head struct {
	Head
	named ConnectionNames
	// alike has the fields by their names in lower case with dashes only. It is nil if there are few fields: then they are searched for
	// each name.
	alike map[string][]int
}

// fewFields is the number of fields up to which they are searched: a document may name many.
const fewFields = 64

func newHead(h Head) *head {
	indexed := &head{Head: h, named: NamesOf(h.Text, h.Fields, h.Named)}
	if len(h.Fields) > fewFields {
		indexed.alike = make(map[string][]int, len(h.Fields))
		for i := range h.Fields {
			name := normalName(h.nameOf(i))
			indexed.alike[name] = append(indexed.alike[name], i)
		}
	}
	return indexed
}

// normalName returns the name of a field in lower case and with dashes only.
func normalName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// nameOf returns the name of field i.
func (h *Head) nameOf(i int) string { return Text(h.Fields[i].Name.Of(h.Text)) }

// each calls f with the fields that have a name, or one that differs in dashes and underscores only, as far as an upstream gets them.
func (h *head) each(name string, f func(i int, same bool)) {
	normal := normalName(name)
	one := func(i int) {
		if !h.named.Has(&h.Fields[i]) {
			f(i, strings.EqualFold(h.nameOf(i), name))
		}
	}
	if h.alike != nil {
		for _, i := range h.alike[normal] {
			one(i)
		}
		return
	}
	for i := range h.Fields {
		if h.Fields[i].Name.Len() == len(name) && normalName(h.nameOf(i)) == normal {
			one(i)
		}
	}
}

// values returns the values of a field, as they came.
func (h *head) values(name string) (values []string) {
	h.each(name, func(i int, same bool) {
		if same {
			values = append(values, Text(h.Fields[i].Value.Of(h.Text)))
		}
	})
	return values
}

// resembles reports whether there is a field whose name is the given one but for dashes and underscores.
func (h *head) resembles(name string) (found bool) {
	h.each(name, func(_ int, same bool) { found = found || !same })
	return found
}

// BeginCheck begins the check of the request. length is the length of its body: 0 without one, negative if it is not known. The
// error is ctx.Err(), or the refusal of the request.
func (x *Exchange) BeginCheck(ctx context.Context, method string, fields Head, length int64) error {
	v := &x.Verdict
	if limit := v.Gateway.MaxBodyBytes; limit > 0 && length > limit {
		v.Checks = validation.Target{}
		return BodyTooLarge(limit)
	}
	t := v.Checks
	v.Checks = validation.Target{} // which may be large, and is needed no more
	x.check = &validation.Check{}
	h := newHead(fields)
	return x.check.Begin(ctx, x.cfg.Checker, t, method, validate.Request{
		Path: validation.PathOf(v.Path), Query: string(v.AppendQuery(nil)), Header: h.values, Resembles: h.resembles,
	}, length)
}

// Check is the check that BeginCheck has begun, or nil.
func (x *Exchange) Check() *validation.Check { return x.check }

// EndCheck checks the request, with its body if that was held. The error is the refusal of the request.
func (x *Exchange) EndCheck(body []byte) error {
	key := ""
	if x.Verdict.Caller.Kind() == snapshot.KeyCaller {
		key = x.Verdict.Caller.ID()
	}
	return x.check.End(body, key)
}

// ReleaseBody gives back the memory that is reserved for a body that was held.
func (x *Exchange) ReleaseBody() {
	if x.check != nil {
		x.check.Release()
	}
}
