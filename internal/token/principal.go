package token

import (
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/issuer"
)

// Principal is who a verified token identifies, and what it gives them. It is immutable, but for Caller: requests share it.
type Principal struct {
	IssuerID string
	Subject  string
	Scopes   apikey.Scopes // in normal form; none: every request is refused
	Owner    string        // external ID; "" for none
	Plan     string        // the name that the token gives; "" for none
	Headers  []Header      // for the upstream, in the order of their names
	JTI      string        // "" for none

	IssuedAt  time.Time // the zero time if the token does not say it
	ExpiresAt time.Time // streams end then
	RefusedAt time.Time // ExpiresAt and the issuer's leeway: from then on the token is refused

	// Recorded says in access records with whose token a request was made.
	Recorded *accesslog.Token

	// Caller is what the data plane makes of the principal (snapshot.Follower.CallerOf). It belongs to no check.
	Caller atomic.Value
}

// Header is a header that the upstream gets from a claim.
type Header struct{ Name, Value string }

// RecordedSubject returns the subject as records have it (issuer.Recorded).
func (p *Principal) RecordedSubject() string { return issuer.Recorded(p.Subject) }

// Scopes of a token in memory: one has the size of apikey.Scope, and its resource.
const (
	principalBytes = 640 // with its Caller
	scopeBytes     = 24
	headerBytes    = 32
)

// size returns about how many bytes of memory the principal takes.
func (p *Principal) size() int {
	n := principalBytes + len(p.Subject) + len(p.Owner) + len(p.Plan) + len(p.JTI)
	for i := range p.Scopes {
		n += scopeBytes + len(p.Scopes[i].Resource)
	}
	for i := range p.Headers {
		n += headerBytes + len(p.Headers[i].Name) + len(p.Headers[i].Value)
	}
	return n
}
