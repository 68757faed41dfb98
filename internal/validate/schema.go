package validate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/document"
)

// schema is a compiled schema of JSON Schema 2020-12. It is not changed once it is compiled.
type schema struct {
	location string // a JSON pointer in the document
	resource *resource
	always   *bool // of a boolean schema
	accepted kinds // of the values that may meet the schema, or more

	ref           *schema
	dynamicRef    *schema
	dynamicName   string // the anchor of dynamicRef, or ""
	dynamicAnchor string

	kinds     kinds // of the keyword type; 0 without it
	integer   bool  // type has integer, and not number
	values    map[string]bool
	constant  *string
	allOf     []*schema
	anyOf     []*schema
	oneOf     []*schema
	not       *schema
	condition *schema
	then      *schema
	otherwise *schema

	properties       map[string]*schema
	patterns         []patternProperties
	additional       *schema
	propertyNames    *schema
	required         []string
	dependencies     []dependency
	minProperties    *int
	maxProperties    *int
	unevaluatedNames *schema

	prefix           []*schema
	items            *schema
	contains         *schema
	minContains      *int
	maxContains      *int
	minItems         *int
	maxItems         *int
	unique           bool
	unevaluatedItems *schema

	minLength *int
	maxLength *int
	pattern   *pattern

	minimum      *number
	maximum      *number
	aboveMinimum *number // exclusiveMinimum
	belowMaximum *number // exclusiveMaximum
	multipleOf   *number
}

// resource is a schema with an identifier, which dynamic references look for anchors in.
type resource struct{ anchors map[string]*schema }

type patternProperties struct {
	pattern *pattern
	schema  *schema
}

// dependency is what a member requires: other members, or a schema.
type dependency struct {
	name     string
	required []string
	schema   *schema
}

// scope is the dynamic scope: the resources through which evaluation has come, the innermost first.
type scope struct {
	resource *resource
	outer    *scope
}

// evaluated says which members or items of one value a keyword has applied to. A nil pointer is nobody who asks.
type evaluated struct{ done []bool }

func (e *evaluated) mark(i int) {
	if e != nil {
		e.done[i] = true
	}
}

// merge adds what other has.
func (e *evaluated) merge(other *evaluated) {
	if e == nil {
		return
	}
	for i, done := range other.done {
		e.done[i] = e.done[i] || done
	}
}

// fresh returns an empty set for the same value as e, or nil if nobody asks.
func (r *run) fresh(e *evaluated) *evaluated {
	if e == nil || !r.step(len(e.done)) {
		return nil
	}
	return &evaluated{make([]bool, len(e.done))}
}

// The work of one check. A step is the visit of a value by a schema, a comparison, or an instruction of a pattern at a
// byte: a few nanoseconds up to 100.
const (
	maxSteps = 10_000_000
	maxCalls = 4000 // that are nested
)

// run is one evaluation of a value.
type run struct {
	in       string // of Problem
	prefix   string // of the pointers
	problems []Problem
	path     []string // names and indexes from the value on, escaped
	quiet    int      // how many callers want no problems, only whether there are any
	steps    int
	calls    int
	exceeded bool // a bound, so that the result means nothing
}

// step counts n steps. It returns false if there were too many.
func (r *run) step(n int) bool {
	r.steps += n
	if r.steps > maxSteps || r.calls > maxCalls {
		r.exceeded = true
	}
	return !r.exceeded
}

// fail records that a keyword of s is not met, and returns false.
func (r *run) fail(s *schema, rule, format string, args ...any) bool {
	if r.quiet > 0 || len(r.problems) >= MaxProblems {
		return false
	}
	r.problems = append(r.problems, Problem{
		In: r.in, Pointer: r.pointer(), Schema: s.location, Rule: rule, Message: fmt.Sprintf(format, args...), Status: statusInvalid,
	})
	return false
}

// maxPointer bounds a pointer, which has names that callers make up.
const maxPointer = 256

func (r *run) pointer() string {
	var b strings.Builder
	b.WriteString(r.prefix)
	for _, part := range r.path {
		b.WriteByte('/')
		b.WriteString(part)
		if b.Len() > maxPointer {
			return strings.ToValidUTF8(b.String()[:maxPointer], "") + "…"
		}
	}
	return b.String()
}

// isValid evaluates s without recording problems.
func (r *run) isValid(s *schema, v *value, sc *scope, seen *evaluated) bool {
	r.quiet++
	ok := r.eval(s, v, sc, seen)
	r.quiet--
	return ok
}

// child evaluates s for a member or an item.
func (r *run) child(s *schema, v *value, sc *scope, part string) bool {
	r.path = append(r.path, part)
	ok := r.eval(s, v, sc, nil)
	r.path = r.path[:len(r.path)-1]
	return ok
}

// eval reports whether v meets s, and marks in seen what s has applied to.
func (r *run) eval(s *schema, v *value, sc *scope, seen *evaluated) bool {
	if !r.step(1) {
		return false
	}
	if s.always != nil {
		if *s.always {
			return true
		}
		return r.fail(s, "false", "is not allowed")
	}
	r.calls++
	defer func() { r.calls-- }()
	if s.resource != nil && (sc == nil || sc.resource != s.resource) {
		sc = &scope{s.resource, sc}
	}
	if s.kinds != 0 && (s.kinds&v.kind == 0 || s.integer && v.kind == kindNumber && !v.number.isInteger()) {
		return r.fail(s, "type", "must be %s", s.typeNames())
	}
	own := seen
	if s.unevaluatedNames != nil && v.kind == kindObject || s.unevaluatedItems != nil && v.kind == kindArray {
		if own = (&evaluated{make([]bool, len(v.items))}); !r.step(len(v.items)) {
			return false
		}
	}
	ok := r.all(s, v, sc, own)
	if own != seen && !r.stop(ok) {
		ok = r.unevaluated(s, v, sc, own) && ok
		seen.merge(own)
	}
	return ok && !r.exceeded
}

// stop reports whether the rest of a schema need not be evaluated.
func (r *run) stop(ok bool) bool {
	return r.exceeded || !ok && (r.quiet > 0 || len(r.problems) >= MaxProblems)
}

// all evaluates the keywords of s one group after the other.
func (r *run) all(s *schema, v *value, sc *scope, seen *evaluated) bool {
	ok := r.constants(s, v)
	for _, group := range []func(*schema, *value, *scope, *evaluated) bool{r.own, r.references, r.logic} {
		if r.stop(ok) {
			return false
		}
		ok = group(s, v, sc, seen) && ok
	}
	return ok
}

// own evaluates the keywords for the type of v.
func (r *run) own(s *schema, v *value, sc *scope, seen *evaluated) bool {
	switch v.kind {
	case kindNumber:
		return r.number(s, v.number)
	case kindString:
		return r.text(s, v.text)
	case kindArray:
		return r.array(s, v, sc, seen)
	case kindObject:
		return r.object(s, v, sc, seen)
	}
	return true
}

func (r *run) constants(s *schema, v *value) bool {
	if s.values == nil && s.constant == nil {
		return true
	}
	text := string(v.appendCanonical(nil))
	if !r.step(len(text)) {
		return false
	}
	if s.values != nil && !s.values[text] {
		return r.fail(s, "enum", "must be one of the values that the schema lists")
	}
	if s.constant != nil && *s.constant != text {
		return r.fail(s, "const", "must be the one value that the schema has")
	}
	return true
}

func (r *run) number(s *schema, n number) bool {
	ok := true
	is := func(bound *number, per int) bool { return bound != nil && r.step((n.bits()+bound.bits())/per) }
	if is(s.minimum, 512) && n.compare(*s.minimum) < 0 {
		ok = r.fail(s, "minimum", "must be ≥ %s", *s.minimum)
	}
	if is(s.maximum, 512) && n.compare(*s.maximum) > 0 {
		ok = r.fail(s, "maximum", "must be ≤ %s", *s.maximum)
	}
	if is(s.aboveMinimum, 256) && !n.isAbove(*s.aboveMinimum) {
		ok = r.fail(s, "exclusiveMinimum", "must be > %s", *s.aboveMinimum)
	}
	if is(s.belowMaximum, 256) && !s.belowMaximum.isAbove(n) {
		ok = r.fail(s, "exclusiveMaximum", "must be < %s", *s.belowMaximum)
	}
	if is(s.multipleOf, 64) && !n.isMultiple(*s.multipleOf) {
		ok = r.fail(s, "multipleOf", "must be a multiple of %s", *s.multipleOf)
	}
	return ok
}

func (r *run) text(s *schema, text string) bool {
	ok := true
	if s.minLength != nil || s.maxLength != nil {
		n := utf8.RuneCountInString(text)
		r.step(n / 16)
		if s.minLength != nil && n < *s.minLength {
			ok = r.fail(s, "minLength", "must have at least %s", count(*s.minLength, "character"))
		}
		if s.maxLength != nil && n > *s.maxLength {
			ok = r.fail(s, "maxLength", "must have at most %s", count(*s.maxLength, "character"))
		}
	}
	if s.pattern != nil {
		matches, bounded := r.match(s.pattern, text)
		if bounded && !matches {
			ok = r.fail(s, "pattern", "must match the pattern of the schema")
		}
	}
	return ok
}

// match reports whether text matches p; bounded is false if that took too many steps.
func (r *run) match(p *pattern, text string) (matches, bounded bool) {
	if !r.step(1 + len(text)*p.size/8) {
		return false, false
	}
	return p.MatchString(text), true
}

// count returns a number with its unit.
func count(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	if before, isY := strings.CutSuffix(unit, "y"); isY {
		unit = before + "ie"
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// bounds checks a number of members or items.
func (r *run) bounds(s *schema, n int, least, most *int, rule, unit string) bool {
	ok := true
	if least != nil && n < *least {
		ok = r.fail(s, "min"+rule, "must have at least %s", count(*least, unit))
	}
	if most != nil && n > *most {
		ok = r.fail(s, "max"+rule, "must have at most %s", count(*most, unit))
	}
	return ok
}

func (r *run) object(s *schema, v *value, sc *scope, seen *evaluated) bool {
	if !r.step(len(v.items)) {
		return false
	}
	ok := r.bounds(s, len(v.items), s.minProperties, s.maxProperties, "Properties", "property")
	if !r.requires(s, v, s.required, "required", "") {
		ok = false
	}
	for i := range v.items {
		if r.stop(ok) {
			return false
		}
		ok = r.property(s, v, i, sc, seen) && ok
	}
	for i := range s.dependencies {
		d := &s.dependencies[i]
		if !r.step(1) || v.member(d.name) < 0 {
			continue
		}
		if d.schema != nil {
			ok = r.eval(d.schema, v, sc, seen) && ok
		} else {
			ok = r.requires(s, v, d.required, "dependentRequired", d.name) && ok
		}
	}
	return ok
}

// requires checks that v has members. because is the member that requires them, or "".
func (r *run) requires(s *schema, v *value, names []string, rule, because string) bool {
	ok := true
	for _, name := range names {
		if !r.step(1) {
			return false
		}
		if v.member(name) >= 0 {
			continue
		}
		if because != "" {
			ok = r.fail(s, rule, "must have %q beside %q", shortName(name), shortName(because))
		} else {
			ok = r.fail(s, rule, "must have %q", shortName(name))
		}
		if r.stop(ok) {
			return false
		}
	}
	return ok
}

// shortName returns a name of a schema as a message shows it.
func shortName(name string) string {
	const most = 100
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// property evaluates what applies to one member.
func (r *run) property(s *schema, v *value, i int, sc *scope, seen *evaluated) bool {
	name, ok, known := v.names[i], true, false
	part := document.EscapeToken(name)
	if of, found := s.properties[name]; found {
		known = true
		ok = r.child(of, &v.items[i], sc, part)
	}
	for j := range s.patterns {
		matches, bounded := r.match(s.patterns[j].pattern, name)
		if !bounded {
			return false
		}
		if matches {
			known = true
			ok = r.child(s.patterns[j].schema, &v.items[i], sc, part) && ok
		}
	}
	if !known && s.additional != nil {
		known = true
		ok = r.child(s.additional, &v.items[i], sc, part) && ok
	}
	if known {
		seen.mark(i)
	}
	if s.propertyNames != nil && !r.isValid(s.propertyNames, &value{kind: kindString, text: name}, sc, nil) && !r.exceeded {
		ok = r.fail(s, "propertyNames", "has a property with a name that is not allowed")
	}
	return ok
}

func (r *run) array(s *schema, v *value, sc *scope, seen *evaluated) bool {
	if !r.step(len(v.items)) {
		return false
	}
	ok := r.bounds(s, len(v.items), s.minItems, s.maxItems, "Items", "item")
	if s.unique && len(v.items) > 1 {
		ok = r.uniqueItems(s, v) && ok
	}
	for i := range v.items {
		of := s.items
		if i < len(s.prefix) {
			of = s.prefix[i]
		}
		if of == nil || r.stop(ok) {
			break
		}
		seen.mark(i)
		ok = r.child(of, &v.items[i], sc, strconv.Itoa(i)) && ok
	}
	if s.contains != nil && !r.stop(ok) {
		ok = r.containsItems(s, v, sc, seen) && ok
	}
	return ok
}

func (r *run) uniqueItems(s *schema, v *value) bool {
	known := make(map[string]bool, len(v.items))
	for i := range v.items {
		text := string(v.items[i].appendCanonical(nil))
		if !r.step(1 + len(text)) {
			return false
		}
		if known[text] {
			return r.fail(s, "uniqueItems", "must not have equal items")
		}
		known[text] = true
	}
	return true
}

func (r *run) containsItems(s *schema, v *value, sc *scope, seen *evaluated) bool {
	least, n := 1, 0
	if s.minContains != nil {
		least = *s.minContains
	}
	for i := range v.items {
		if r.isValid(s.contains, &v.items[i], sc, nil) {
			seen.mark(i)
			n++
		}
		if r.exceeded {
			return false
		}
	}
	if n < least {
		return r.fail(s, "contains", "must contain at least %s that the schema describes", count(least, "item"))
	}
	if s.maxContains != nil && n > *s.maxContains {
		return r.fail(s, "maxContains", "must contain at most %s that the schema describes", count(*s.maxContains, "item"))
	}
	return true
}

func (r *run) references(s *schema, v *value, sc *scope, seen *evaluated) bool {
	ok := true
	if s.ref != nil {
		ok = r.eval(s.ref, v, sc, seen)
	}
	if s.dynamicRef != nil && !r.stop(ok) {
		ok = r.eval(s.dynamic(sc), v, sc, seen) && ok
	}
	return ok
}

// dynamic returns what the dynamic reference of s refers to: the anchor in the outermost resource that has it, if the
// reference leads to a dynamic anchor at all (JSON Schema Core, 8.2.3.2).
func (s *schema) dynamic(sc *scope) *schema {
	target := s.dynamicRef
	if s.dynamicName == "" || target.dynamicAnchor != s.dynamicName {
		return target
	}
	for ; sc != nil; sc = sc.outer {
		if sc.resource != nil && sc.resource.anchors[s.dynamicName] != nil {
			target = sc.resource.anchors[s.dynamicName]
		}
	}
	return target
}

func (r *run) logic(s *schema, v *value, sc *scope, seen *evaluated) bool {
	ok := true
	for _, of := range s.allOf {
		if r.stop(ok) {
			return false
		}
		ok = r.eval(of, v, sc, seen) && ok
	}
	if len(s.anyOf) > 0 && !r.stop(ok) {
		ok = r.any(s, v, sc, seen) && ok
	}
	if len(s.oneOf) > 0 && !r.stop(ok) {
		ok = r.one(s, v, sc, seen) && ok
	}
	if s.not != nil && !r.stop(ok) && r.isValid(s.not, v, sc, nil) {
		ok = r.fail(s, "not", "must not be what the schema excludes")
	}
	if s.condition != nil && !r.stop(ok) {
		branch, apart := s.otherwise, r.fresh(seen)
		if r.isValid(s.condition, v, sc, apart) {
			branch = s.then
			if apart != nil {
				seen.merge(apart)
			}
		}
		if branch != nil && !r.exceeded {
			ok = r.eval(branch, v, sc, seen) && ok
		}
	}
	return ok
}

// alternative evaluates one of several schemas, and marks what it has applied to if v meets it.
func (r *run) alternative(of *schema, v *value, sc *scope, seen *evaluated) bool {
	apart := r.fresh(seen)
	ok := r.isValid(of, v, sc, apart)
	if ok && apart != nil {
		seen.merge(apart)
	}
	return ok
}

func (r *run) any(s *schema, v *value, sc *scope, seen *evaluated) bool {
	met := false
	for _, of := range s.anyOf {
		met = r.alternative(of, v, sc, seen) || met
		if r.exceeded || met && seen == nil {
			return met
		}
	}
	return met || r.none(s, s.anyOf, "anyOf", v, sc)
}

func (r *run) one(s *schema, v *value, sc *scope, seen *evaluated) bool {
	n := 0
	for _, of := range s.oneOf {
		if r.alternative(of, v, sc, seen) {
			n++
		}
		if r.exceeded {
			return false
		}
	}
	switch n {
	case 0:
		return r.none(s, s.oneOf, "oneOf", v, sc)
	case 1:
		return true
	}
	return r.fail(s, "oneOf", "must match exactly one of the alternatives, and matches several")
}

// none records that v meets none of several schemas. If only one of them is for the type of v, it records what of that
// is not met.
func (r *run) none(s *schema, of []*schema, rule string, v *value, sc *scope) bool {
	if r.quiet > 0 {
		return false
	}
	var only *schema
	for _, one := range of {
		if one.accepted&v.kind == 0 {
			continue
		}
		if only != nil {
			return r.fail(s, rule, "must match one of the alternatives, and matches none")
		}
		only = one
	}
	if only != nil {
		return r.eval(only, v, sc, nil)
	}
	return r.fail(s, rule, "must match one of the alternatives, and matches none")
}

// unevaluated evaluates unevaluatedProperties or unevaluatedItems.
func (r *run) unevaluated(s *schema, v *value, sc *scope, seen *evaluated) bool {
	of := s.unevaluatedNames
	if v.kind == kindArray {
		of = s.unevaluatedItems
	}
	ok := true
	for i := range v.items {
		if r.stop(ok) {
			return false
		}
		if seen.done[i] {
			continue
		}
		seen.mark(i)
		part := strconv.Itoa(i)
		if v.kind == kindObject {
			part = document.EscapeToken(v.names[i])
		}
		ok = r.child(of, &v.items[i], sc, part) && ok
	}
	return ok
}

// typeNames returns the types of s for a message.
func (s *schema) typeNames() string {
	var names []string
	for _, one := range []struct {
		kind kinds
		name string
	}{
		{kindString, "a string"}, {kindNumber, "a number"}, {kindBool, "a boolean"}, {kindArray, "an array"}, {kindObject, "an object"}, {kindNull, "null"},
	} {
		if s.kinds&one.kind == 0 {
			continue
		}
		if one.kind == kindNumber && s.integer {
			one.name = "an integer"
		}
		names = append(names, one.name)
	}
	return strings.Join(names, " or ")
}
