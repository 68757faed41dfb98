package traffic

import (
	"bytes"
	"cmp"
)

// Identity is what the counts of a chunk are grouped by. Fields that its part does not
// group by are zero.
type Identity struct {
	Gateway, Route, Key [16]byte
	Destination         [16]byte // Destination.ID
	Status              uint16
}

// of returns the identity with the fields that part p groups by.
func (i Identity) of(p Part) Identity {
	if p != Keys {
		i.Key = [16]byte{}
	}
	if p == Gateways || p.hasDestinations() {
		i.Route = [16]byte{}
	}
	if !p.hasDestinations() {
		i.Destination = [16]byte{}
	}
	return i
}

// compare compares identities in the order of part p.
func (i *Identity) compare(p Part, o *Identity) int {
	var order int
	switch p {
	case Keys:
		order = cmp.Or(bytes.Compare(i.Key[:], o.Key[:]), bytes.Compare(i.Gateway[:], o.Gateway[:]), bytes.Compare(i.Route[:], o.Route[:]))
	case Routes:
		order = cmp.Or(bytes.Compare(i.Route[:], o.Route[:]), bytes.Compare(i.Gateway[:], o.Gateway[:]))
	default: // Destination is zero unless p has destinations
		order = cmp.Or(bytes.Compare(i.Gateway[:], o.Gateway[:]), bytes.Compare(i.Destination[:], o.Destination[:]))
	}
	return cmp.Or(order, cmp.Compare(i.Status, o.Status))
}

// bound returns the identifier that Chunk.First and Last refer to.
func (i *Identity) bound(p Part) [16]byte {
	switch p {
	case Keys:
		return i.Key
	case Routes:
		return i.Route
	default:
		return i.Gateway
	}
}

// Counts are sums over requests.
type Counts struct {
	Requests, UpstreamErrors, BytesIn, BytesOut int64
}

// Add adds o to c.
func (c *Counts) Add(o *Counts) {
	c.Requests += o.Requests
	c.UpstreamErrors += o.UpstreamErrors
	c.BytesIn += o.BytesIn
	c.BytesOut += o.BytesOut
}

// Entry is the counts and latencies of one identity. The latencies are nil in parts Keys and Subjects.
type Entry struct {
	Identity
	Counts
	To                Destination // that of Identity.Destination
	Amounts           Amounts
	Latency, Upstream *Sketch
}
