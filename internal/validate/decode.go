package validate

import (
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// isNumber reports whether text is a number as JSON writes it.
func isNumber(text string) bool {
	digits := func(s string) (rest string, ok bool) {
		rest = strings.TrimLeft(s, "0123456789")
		return rest, len(rest) < len(s)
	}
	rest := strings.TrimPrefix(text, "-")
	if len(rest) > 1 && rest[0] == '0' && rest[1] >= '0' && rest[1] <= '9' {
		return false
	}
	rest, ok := digits(rest)
	if !ok {
		return false
	}
	if fraction, has := strings.CutPrefix(rest, "."); has {
		if rest, ok = digits(fraction); !ok {
			return false
		}
	}
	if rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		exponent := rest[1:]
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		if rest, ok = digits(exponent); !ok {
			return false
		}
	}
	return rest == ""
}

// maxLookup bounds how many schemas property and item look at.
const maxLookup = 200

// property returns the schema of a property, also of a schema that s refers to or combines, or nil. It adds the steps that this takes.
func (s *schema) property(steps *int, name string) *schema {
	return s.lookup(steps, func(one *schema) *schema { return one.properties[name] })
}

// member is property for any name: without a schema of its own, that of patternProperties or additionalProperties.
func (c *checker) member(s *schema, name string) *schema {
	if of := s.property(&c.run.steps, name); of != nil {
		return of
	}
	return s.lookup(&c.run.steps, func(one *schema) *schema {
		for _, of := range one.patterns {
			if matches, bounded := c.run.match(of.pattern, name); matches || !bounded {
				return of.schema
			}
		}
		if one.additional != nil && one.additional.always == nil {
			return one.additional
		}
		return nil
	})
}

// isFree reports whether a name in the query is that of a property which p, an object with its properties apart, has by
// patternProperties or additionalProperties, and belongs to no other parameter.
func (c *checker) isFree(p *parameter, name string) bool {
	of := c.member(p.schema, name)
	if of == nil || of.accepted&(kindArray|kindObject) != 0 { // how these are written is not defined
		return false
	}
	for i := range c.parameters {
		q := &c.parameters[i]
		if q.in != InQuery || !c.run.step(1) {
			continue
		}
		isObject := q.schema != nil && !q.json && q.schema.accepted == kindObject
		switch {
		case isObject && q.style == "deepObject":
			if strings.HasPrefix(name, q.name+"[") {
				return false
			}
		case isObject && q.style == "form" && q.explode:
			if q != p && q.schema.property(&c.run.steps, name) != nil {
				return false
			}
		case q.name == name:
			return false
		}
	}
	return true
}

// item returns the schema of items, also of a schema that s refers to or combines, or nil. It adds the steps that this takes.
func (s *schema) item(steps *int) *schema {
	return s.lookup(steps, func(one *schema) *schema { return one.items })
}

// lookup returns what get finds first in s and the schemas that apply to the same value.
func (s *schema) lookup(steps *int, get func(*schema) *schema) *schema {
	left := maxLookup
	var look func(s *schema) *schema
	look = func(s *schema) *schema {
		if left--; s == nil || left < 0 {
			return nil
		}
		*steps++
		if found := get(s); found != nil {
			return found
		}
		for _, list := range [][]*schema{{s.ref}, s.allOf, s.anyOf, s.oneOf, {s.then, s.otherwise}} {
			for _, one := range list {
				if found := look(one); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return look(s)
}

// decode returns the value of a parameter or a field that has texts. The types that its schema accepts decide; if there
// are several, what the schema accepts.
func (c *checker) decode(p *parameter, texts []string) (*value, *Problem) {
	if p.json {
		return c.decodeJSON(p, texts)
	}
	of := p.schema.accepted
	if of == anyKind { // otherwise a text that the schema refuses would pass as a list of one
		switch len(texts) {
		case 0:
			of = kindObject
		case 1:
			of = anyKind &^ (kindArray | kindObject)
		default: // a service may read any of them
			for _, one := range texts {
				if v, failed := c.decode(p, []string{one}); failed != nil || !c.run.isValid(p.schema, v, nil, nil) {
					return v, failed
				}
			}
			of = kindArray
		}
	}
	var first *Problem
	var candidate *value
	for _, way := range []struct {
		kinds  kinds
		decode func(*parameter, []string) (*value, *Problem)
	}{
		{kindNull | kindBool | kindNumber | kindString, c.scalar}, {kindArray, c.array}, {kindObject, c.object},
	} {
		if of&way.kinds == 0 && of != 0 || len(texts) == 0 && way.kinds != kindObject {
			continue // only the properties of an object come without a text
		}
		v, failed := way.decode(p, texts)
		switch {
		case failed != nil && failed.Rule == "encoding":
			return nil, failed
		case failed != nil && first == nil:
			first = failed
		case failed != nil:
		case of&^way.kinds == 0 || c.run.isValid(p.schema, v, nil, nil):
			return v, nil
		case candidate == nil:
			candidate = v
		}
		if c.run.exceeded {
			break
		}
	}
	if candidate != nil {
		return candidate, nil
	}
	if first == nil {
		return &value{kind: kindString}, nil
	}
	return nil, first
}

// decodeJSON returns the value of a parameter or a field whose texts are in JSON: one, or in a multipart form also one for each item of
// an array.
func (c *checker) decodeJSON(p *parameter, texts []string) (*value, *Problem) {
	items := p.style == plainStyle && p.schema.accepted&kindArray != 0
	if len(texts) != 1 && !items {
		return nil, p.wrong("duplicate", "must be given once")
	}
	list := &value{kind: kindArray}
	for _, one := range texts {
		text, ok := c.unescape(p, one)
		if !ok {
			return nil, p.badEncoding()
		}
		v, err := parseJSON([]byte(text))
		if err != nil {
			return nil, p.wrong(ruleOf(err), err.Error())
		}
		if len(texts) == 1 && (!items || v.kind&p.schema.accepted != 0) {
			return v, nil
		}
		list.items = append(list.items, *v)
	}
	return list, nil
}

// unescape decodes a text of a parameter.
func (c *checker) unescape(p *parameter, raw string) (string, bool) {
	switch {
	case p.style == plainStyle:
		return raw, true // a file may be anything
	case p.in == InHeader || p.style == "cookie":
		return raw, isUTF8(raw)
	case p.in == InCookie:
		if text, ok := unescape(raw, false); ok {
			return text, true
		}
		return raw, isUTF8(raw)
	}
	return unescape(raw, p.in == InQuery || p.in == InBody)
}

// wrong returns a problem with a parameter.
func (p *parameter) wrong(rule, message string) *Problem {
	return &Problem{In: p.in, Pointer: "/" + document.EscapeToken(p.name), Schema: p.pointer, Rule: rule, Message: message, Status: statusInvalid}
}

func (p *parameter) badEncoding() *Problem { return p.wrong("encoding", badEncoding) }

// scalar decodes what is one text.
func (c *checker) scalar(p *parameter, texts []string) (*value, *Problem) {
	if len(texts) != 1 {
		return nil, p.wrong("duplicate", "must be given once")
	}
	raw, ok := texts[0], true
	switch p.style {
	case "label":
		raw, ok = strings.CutPrefix(raw, ".")
	case "matrix":
		raw, ok = strings.CutPrefix(raw, ";"+p.name+"=")
	}
	if !ok {
		return nil, p.wrong("style", "must be written in the style "+p.style)
	}
	text, ok := c.unescape(p, raw)
	if !ok {
		return nil, p.badEncoding()
	}
	v, ok := c.primitive(p.schema, text)
	if !ok {
		return nil, p.wrong("number", errNumber.Error())
	}
	return &v, nil
}

// primitive returns the value that a text stands for, of a type that s accepts. s may be nil. ok is false for a number
// that is too large or too precise.
func (c *checker) primitive(s *schema, text string) (v value, ok bool) {
	asText := value{kind: kindString, text: text}
	if s == nil || s.accepted&(kindNumber|kindBool|kindNull) == 0 {
		return asText, true
	}
	if s.accepted == anyKind { // services read it as either
		if n, ok := numberOf(text); ok {
			if asNumber := (value{kind: kindNumber, number: n}); !c.run.isValid(s, &asNumber, nil, nil) {
				return asNumber, true
			}
		}
		return asText, true
	}
	if s.accepted&kindString != 0 && c.run.isValid(s, &asText, nil, nil) {
		return asText, true
	}
	switch {
	case s.accepted&kindNumber != 0 && isNumber(text):
		n, ok := parseNumber(text)
		return value{kind: kindNumber, number: n}, ok
	case s.accepted&kindBool != 0 && (text == "true" || text == "false"):
		return value{kind: kindBool, boolean: text == "true"}, true
	case s.accepted&kindNull != 0 && s.accepted&kindString == 0 && (text == "" || text == "null"):
		return value{kind: kindNull}, true
	}
	return asText, true
}

// numberOf returns the number that a text stands for.
func numberOf(text string) (n number, ok bool) {
	if !isNumber(text) {
		return number{}, false
	}
	return parseNumber(text)
}

// split splits a text at a delimiter. If it has none, delimiters that are percent-encoded count, as many clients write
// them so.
func split(raw string, delimiter string, encoded ...string) []string {
	if raw == "" {
		return nil
	}
	if strings.Contains(raw, delimiter) {
		return strings.Split(raw, delimiter)
	}
	for _, one := range encoded {
		raw = strings.ReplaceAll(raw, one, delimiter)
	}
	return strings.Split(raw, delimiter)
}

// pieces returns the texts of an array, or of an object of a style that has no names apart.
func (p *parameter) pieces(texts []string) ([]string, *Problem) {
	if p.in == InHeader {
		var list []string
		for _, one := range texts {
			for piece := range strings.SplitSeq(one, ",") {
				list = append(list, strings.Trim(piece, " \t"))
			}
		}
		return list, nil
	}
	if p.explode && (p.style != "simple" && p.style != "label" && p.style != "matrix") {
		return texts, nil
	}
	if len(texts) != 1 {
		return nil, p.wrong("duplicate", "must be given once")
	}
	raw := texts[0]
	switch p.style {
	case "spaceDelimited":
		return split(strings.ReplaceAll(raw, "+", "%20"), "%20"), nil
	case "pipeDelimited":
		return split(raw, "|", "%7C", "%7c"), nil
	case "label":
		raw, ok := strings.CutPrefix(raw, ".")
		if !ok {
			return nil, p.wrong("style", "must be written in the style label")
		}
		if p.explode {
			return split(raw, "."), nil
		}
		return split(raw, ","), nil
	case "matrix":
		return p.matrix(raw)
	}
	return split(raw, ",", "%2C", "%2c"), nil
}

// matrix returns the pieces of ;name=a,b or of ;name=a;name=b; an object that is exploded keeps its names.
func (p *parameter) matrix(raw string) ([]string, *Problem) {
	raw, ok := strings.CutPrefix(raw, ";")
	if !ok {
		return nil, p.wrong("style", "must be written in the style matrix")
	}
	if !p.explode {
		if raw, ok = strings.CutPrefix(raw, p.name+"="); !ok {
			return nil, p.wrong("style", "must be written in the style matrix")
		}
		return split(raw, ","), nil
	}
	list := split(raw, ";")
	for i := range list {
		list[i] = strings.TrimPrefix(list[i], p.name+"=")
	}
	return list, nil
}

func (c *checker) array(p *parameter, texts []string) (*value, *Problem) {
	pieces, failed := p.pieces(texts)
	if failed != nil {
		return nil, failed
	}
	v := &value{kind: kindArray}
	of := p.schema.item(&c.run.steps)
	for _, piece := range pieces {
		text, ok := c.unescape(p, piece)
		if !ok {
			return nil, p.badEncoding()
		}
		item, ok := c.primitive(of, text)
		if !ok {
			return nil, p.wrong("number", errNumber.Error())
		}
		v.items = append(v.items, item)
	}
	return v, nil
}

// hasProperties reports whether an object whose properties are apart in the query has one there.
func (c *checker) hasProperties(p *parameter) bool {
	if p.in != InQuery || p.json || p.schema == nil || p.schema.accepted&kindObject == 0 || c.query.failed != "" {
		return false
	}
	list, styled := c.properties(p)
	return len(list) > 0 || !styled
}

// properties returns the properties of an object that are apart in the query or form. styled is false if some are written in a way that
// services read otherwise, such as a[b][c] or a[b]c, or come beside a text.
func (c *checker) properties(p *parameter) (list []pair, styled bool) {
	styled = true
	switch {
	case p.style == "deepObject":
		begin := p.name + "["
		for _, one := range c.query.list {
			if !c.run.step(1) {
				break
			}
			rest, ok := strings.CutPrefix(one.name, begin)
			if !ok {
				continue
			}
			name, closed := strings.CutSuffix(rest, "]")
			if !closed || name == "" || strings.ContainsAny(name, "[]") {
				styled = false
				continue
			}
			list = append(list, pair{name: name, raw: one.raw})
		}
		if n := len(c.query.byName[p.name]); n > 0 && (len(list) > 0 || p.schema.accepted&^(kindArray|kindObject) == 0) {
			styled = false
		}
	case p.style == "form" && p.explode:
		for _, one := range c.query.list {
			if !c.run.step(1) {
				break
			}
			if p.schema.property(&c.run.steps, one.name) != nil || c.isFree(p, one.name) {
				list = append(list, one)
			}
		}
	}
	return list, styled
}

func (c *checker) object(p *parameter, texts []string) (*value, *Problem) {
	v := &value{kind: kindObject}
	defer v.indexMembers()
	taken := map[string]bool{}
	add := func(name, raw string) *Problem {
		if taken[name] {
			return p.wrong("duplicate", "must have each property once")
		}
		text, ok := c.unescape(p, raw)
		if !ok {
			return p.badEncoding()
		}
		item, ok := c.primitive(c.member(p.schema, name), text)
		if !ok {
			return p.wrong("number", errNumber.Error())
		}
		taken[name] = true
		v.names, v.items = append(v.names, name), append(v.items, item)
		return nil
	}
	if p.in == InQuery && (p.style == "deepObject" || p.explode && p.style == "form") || p.in == InBody && p.style == "deepObject" {
		list, styled := c.properties(p)
		if !styled {
			return nil, p.wrong("style", "must be written in the style "+p.style)
		}
		for _, one := range list {
			if failed := add(one.name, one.raw); failed != nil {
				return nil, failed
			}
		}
		return v, nil
	}
	pieces, failed := p.pieces(texts)
	if failed != nil {
		return nil, failed
	}
	for i := 0; i < len(pieces); i++ {
		rawName, raw, _ := strings.Cut(pieces[i], "=")
		if !p.explode {
			if i+1 == len(pieces) {
				return nil, p.wrong("style", "must have a value for each name")
			}
			rawName, raw = pieces[i], pieces[i+1]
			i++
		}
		name, ok := c.unescape(p, rawName)
		if !ok {
			return nil, p.badEncoding()
		}
		if failed := add(name, raw); failed != nil {
			return nil, failed
		}
	}
	return v, nil
}
