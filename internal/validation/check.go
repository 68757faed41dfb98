package validation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validate"
)

// Target says what the requests of a route are held against. The zero value is nothing.
type Target struct {
	Document *Document // nil for nothing
	Path     string    // of the route
	Enforce  bool      // refuse what does not meet it
}

// Checker holds requests against documents. It is safe for concurrent use.
type Checker struct {
	Holder  *Holder
	Reports *Reports
	Now     func() time.Time // for reports
}

// maxFramed is the size of a body with its framing up to which it is checked: small chunks take more bytes than their data.
const maxFramed = 4 * validate.MaxBody

// Check is the check of one request. The zero value checks nothing.
type Check struct {
	checker *Checker
	target  Target
	method  string
	request validate.Request
	of      *validate.Operation
	held    Held
	wants   validate.Want
	sized   bool  // the size of the body is declared
	size    int64 // of the part of the body that has come
	large   bool  // the body is larger than is checked
	crowded bool  // there was no room to hold it
}

// Begin begins the check of a request whose path is in normal form. length is the declared length of its body: 0 without one, negative
// if it is not known. The error says that the request must not go on.
func (k *Check) Begin(ctx context.Context, c *Checker, t Target, method string, r validate.Request, length int64) error {
	*k = Check{checker: c, target: t, method: strings.Clone(method), request: r}
	of, err := t.Document.Operation(ctx, method, t.Path)
	if err != nil {
		if ctx.Err() != nil || t.Enforce {
			return err
		}
		return nil
	}
	if k.of = of; of == nil {
		return nil
	}
	k.request.HasBody = length != 0
	k.wants, k.sized = of.Wants(&k.request), length >= 0
	if k.sized && k.wants == validate.WantFirst { // it is known
		k.wants = validate.WantNothing
	}
	if k.wants == validate.WantAll && length > validate.MaxBody {
		k.size, k.large = length, true
	}
	return nil
}

// WantsBody reports whether the body must be held for the check: the engine then calls Hold with what has come, until it is
// whole or Hold returns false.
func (k *Check) WantsBody() bool {
	return k.of != nil && !k.large && !k.crowded && k.wants != validate.WantNothing
}

// Hold reserves memory for a body of which size bytes have come, with their framing in memory bytes. It returns false if the body is not
// held any longer.
func (k *Check) Hold(size, memory int64) bool {
	k.size = size
	switch {
	case k.wants == validate.WantFirst && size > 0:
		return false
	case size > validate.MaxBody:
		k.large = true
	case memory > maxFramed:
		k.size, k.large = validate.MaxBody+1, true
	case !k.held.Grow(k.checker.Holder, k.target.Document.accountID, memory):
		k.crowded = true
	default:
		return true
	}
	return false
}

// End checks the request, whose body is body if it was held, and counts it. The error is the refusal of a request, if the mode is to
// enforce. The caller calls Release when it needs the body no more.
func (k *Check) End(body []byte, keyID string) error {
	if k.of == nil {
		k.count(nil, keyID, false)
		return nil
	}
	if k.crowded {
		k.count(nil, keyID, false)
		if k.target.Enforce {
			return fault.New(fault.Unavailable, "too many request bodies are held until they are checked; try again")
		}
		return nil
	}
	if k.request.Body, k.request.BodySize = body, max(k.size, int64(len(body))); k.wants != validate.WantNothing && k.request.BodySize == 0 {
		k.request.HasBody = false
	}
	var problems []validate.Problem
	k.checker.Holder.check(k.target.Document.accountID, len(body), func() { problems = k.of.Check(&k.request) })
	k.request = validate.Request{}
	k.count(problems, keyID, true)
	if len(problems) == 0 || !k.target.Enforce {
		return nil
	}
	return refusal(problems)
}

func (k *Check) count(problems []validate.Problem, keyID string, checked bool) {
	k.checker.Reports.Add(&Entry{
		AccountID: k.target.Document.accountID, GatewayID: k.target.Document.id.gatewayID, Method: k.method, Path: k.target.Path,
		KeyID: keyID, At: k.checker.Now(), Problems: problems, Checked: checked,
	})
}

// Release gives back the memory for the body.
func (k *Check) Release() { k.held.Release() }

// refusal returns the error for a request with problems.
func refusal(problems []validate.Problem) *fault.Error {
	e := &fault.Error{Code: fault.InvalidRequest, Auth: fault.SchemaMismatch}
	for i := range problems {
		p := &problems[i]
		e.Problems = append(e.Problems, fault.Problem{Message: p.Message, In: p.In, Pointer: &p.Pointer})
	}
	first := &problems[0]
	for i := range problems { // a status says what the whole request must change
		if problems[i].Status != fault.InvalidRequest.Status() {
			first = &problems[i]
			break
		}
	}
	switch first.Status {
	case fault.BodyTooLarge.Status():
		e.Code = fault.BodyTooLarge
	case fault.UnsupportedMediaType.Status():
		e.Code = fault.UnsupportedMediaType
	}
	e.Err = mismatch(detailOf(first, len(problems)))
	e.Message = "the request does not meet the OpenAPI document of this API: " + Describe(first)
	return e
}

// mismatch is the cause of a refusal, in words for the operator: it names the place in the document, and nothing of the request.
type mismatch string

func (m mismatch) Error() string { return string(m) }

func detailOf(p *validate.Problem, n int) string {
	text := Describe(p) + " (" + p.Rule + " at " + p.Schema + ")"
	if n > 1 {
		text += fmt.Sprintf(", and %d more", n-1)
	}
	return text
}

// DetailOf returns what of the document a request does not meet that Check.End has refused with err.
func DetailOf(err error) (detail string, is bool) {
	var m mismatch
	is = errors.As(err, &m)
	return string(m), is
}

// Describe says what must be otherwise in a request, without a name that its caller has made up.
func Describe(p *validate.Problem) string {
	in := strings.ReplaceAll(p.In, "_", " ")
	if name := parameterOf(p); name != "" {
		return "the " + in + " parameter " + name + " " + p.Message
	}
	return "the " + in + " " + p.Message
}

// parameterOf returns the name of the parameter that a problem concerns, which the document has; "" for none.
func parameterOf(p *validate.Problem) string {
	switch p.In {
	case validate.InPath, validate.InQuery, validate.InHeader, validate.InCookie:
	default:
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(p.Pointer, "/"), "/")
	return document.UnescapeToken(name)
}

// propertyOf returns the property of a body, such as items.qty, to which a pointer to a schema in a document leads; "" for the whole
// body. It is the document's name of it.
func propertyOf(pointer string) string {
	parts := strings.Split(pointer, "/")
	begin := slices.Index(parts, "schema")
	if strings.HasPrefix(pointer, "/components/schemas/") {
		begin = 3
	}
	var names []string
	for i := begin + 1; begin >= 0 && i+1 < len(parts); i++ {
		if parts[i] == "properties" {
			i++
			names = append(names, document.UnescapeToken(parts[i]))
		}
	}
	return strings.Join(names, ".")
}

// PathOf returns a path in the normal form that checks need.
func PathOf(path string) string { return strings.Clone(gateway.NormalizePath(nil, path)) }
