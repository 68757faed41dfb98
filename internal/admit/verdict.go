package admit

import (
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Outcome tells a driver what to do with the request.
type Outcome uint8

// The outcomes.
const (
	Refuse    Outcome = iota // answer with Verdict.Fault
	Forward                  // every limit is charged: forward to Gateway.Upstream
	Preflight                // answer 204 without a body
	Wait                     // call Admitter.Wait, then decide again
)

// Verdict is the end of a decision. It belongs to the caller, who may use it
// again for the next request; its strings are parts of the request's.
type Verdict struct {
	Outcome Outcome

	// Code is why the request is refused, and Auth the authentication code of
	// a 401 or 403.
	Code fault.Code
	Auth fault.AuthCode
	// Close tells that the connection must end after the answer: the request
	// was not well formed.
	Close bool

	Gateway *snapshot.Gateway // nil before the gateway is found
	Route   *snapshot.Route   // nil if none matched
	Key     *snapshot.Key     // nil if none was valid, and on public routes

	// KeyPrefix is the prefix of a key string that was given and has a key's
	// form and checksum, known or not.
	KeyPrefix string

	// Path is the path to forward, byte for byte.
	Path string
	// Allow is the value of the field Allow of a 405.
	Allow string
	// AllowOrigin is the value of Access-Control-Allow-Origin, or "". VaryOrigin
	// tells that the answer depends on Origin.
	AllowOrigin string
	VaryOrigin  bool

	queryHead, queryTail string // the query to forward is their concatenation
	hasQuery             bool

	standings [4]ratelimit.Standing
	applied   int // how many standings there are
	worst     int // the one that the headers tell
	daily     *ratelimit.Daily
}

// HasQuery reports whether the forwarded target has a "?".
func (v *Verdict) HasQuery() bool { panic("x") }

// AppendTarget appends the path and query to forward: what the client sent less
// any api_key parameter.
func (v *Verdict) AppendTarget(dst []byte) []byte { panic("x") }

// AppendQuery appends the query to forward, without "?".
func (v *Verdict) AppendQuery(dst []byte) []byte { panic("x") }

// Standings returns where the limits stand after the decision; worst is the
// index of the one that X-RateLimit-* tell, or -1 if there are none.
func (v *Verdict) Standings() (all []ratelimit.Standing, worst int) { panic("x") }

// Fault returns the error of a refusal, for fault.Answer; nil for any other
// outcome.
func (v *Verdict) Fault() *fault.Error { panic("x") }

// EachField calls yield with each field that every answer to the request must
// carry: the rate limit fields (contract, 4.3), and, where they apply,
// Retry-After, WWW-Authenticate, Allow and the CORS fields. An upstream's fields of the
// names X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit
// and RateLimit-Policy must be dropped, and Vary must be added to, not
// replaced. value is valid until yield returns; scratch, of 512 bytes or more, holds it.
func (v *Verdict) EachField(scratch []byte, yield func(name string, value []byte)) { panic("x") }

// AppendFields appends what EachField tells, each as "Name: value\r\n".
func (v *Verdict) AppendFields(dst []byte) []byte { panic("x") }
