package cost

import "sync"

// maxDepth is how deeply the objects and arrays of a response may nest.
const maxDepth = 64

// Program is the compiled form of rules. It is immutable and serves any number of readers at once.
type Program struct {
	rules   Rules
	readers sync.Pool // of *Reader
}

// Compile compiles valid rules. It keeps a copy of them.
func Compile(rules Rules) *Program {
	return &Program{rules: rules.Clone()}
}

// Rules returns the rules. They must not be changed.
func (p *Program) Rules() Rules { return p.rules }

// ReadsBody reports whether a rule needs the body of the response, so that there must be a Reader.
func (p *Program) ReadsBody() bool { return p.rules.ReadsBody() }

// Reader returns a Reader for the body of one response with the values of Content-Type and Content-Encoding, "" if
// absent. Close gives it back. It does not allocate if a reader of an earlier response is there.
func (p *Program) Reader(contentType, contentEncoding string) *Reader {
	return &Reader{program: p}
}
