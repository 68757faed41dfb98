package traffic

import (
	"crypto/sha256"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
)

const (
	// MaxDestinations is the number of destinations that are told apart in the counts of an account and interval: as many
	// as an account has targets. Requests for further addresses are counted together, as those of OtherDestination.
	MaxDestinations = 10_000
	// OtherDestination stands for the addresses of an upstream beyond MaxDestinations, and for upstreams beyond twice as
	// many. An account may also have an upstream of that name.
	OtherDestination = "other"
)

// Destination is where a request was sent, the last time if it was several times (targets.md, section 9). The zero value
// is that of requests that were sent nowhere.
type Destination struct {
	Upstream string // name of the gateway's upstream
	Target   string // host and port, as in the target's URL
	Side     string // the upstream, if a split decided it; otherwise ""
}

// OfToken returns what stands for the bearers of tokens of one issuer and subject in part Subjects. There are as many as there
// may be destinations, and further ones are counted together in the same way.
func OfToken(t *accesslog.Token) Destination {
	return Destination{Upstream: t.IssuerID, Target: t.Subject}
}

// Token returns the issuer and the subject of a Destination of part Subjects.
func (d *Destination) Token() accesslog.Token {
	return accesslog.Token{IssuerID: d.Upstream, Subject: d.Target}
}

// ID returns an identifier of d, which differs from those of others. That of the zero value is zero.
func (d *Destination) ID() (id [16]byte) {
	if *d == (Destination{}) {
		return id
	}
	h := sha256.New()
	for _, s := range [...]string{d.Upstream, "\x00", d.Target, "\x00", d.Side} {
		h.Write([]byte(s))
	}
	copy(id[:], h.Sum(nil))
	return id
}

// Destinations tells the first MaxDestinations destinations apart. The zero value has none.
type Destinations struct{ known map[Destination][16]byte }

// Of returns the destination that counts for d, in memory of its own, and its identifier. It is d, or if there are too
// many, that of OtherDestination.
func (n *Destinations) Of(d Destination) (Destination, [16]byte) {
	if d == (Destination{}) {
		return d, [16]byte{}
	}
	id, known := n.known[d]
	if !known && len(n.known) >= MaxDestinations && d.Target != OtherDestination {
		d.Target = OtherDestination
		id, known = n.known[d]
	}
	if !known && len(n.known) >= 2*MaxDestinations {
		d = Destination{Upstream: OtherDestination, Target: OtherDestination}
		id, known = n.known[d]
	}
	if known {
		return d, id
	}
	if n.known == nil {
		n.known = map[Destination][16]byte{}
	}
	d = Destination{strings.Clone(d.Upstream), strings.Clone(d.Target), strings.Clone(d.Side)}
	id = d.ID()
	n.known[d] = id
	return d, id
}

// Reset forgets all destinations, and keeps the memory.
func (n *Destinations) Reset() { clear(n.known) }
