package openapi

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Keygate's extensions of path items and operations. The document's own security field is
// ignored: the gateway decides who may call.
const (
	limitExtension       = "x-keygate-rate-limit"
	authExtension        = "x-keygate-auth"
	costExtension        = "x-keygate-cost"
	concurrencyExtension = "x-keygate-concurrency"
	upstreamExtension    = "x-keygate-upstream"
	splitExtension       = "x-keygate-split"

	extensionPrefix = "x-keygate-" // of those of gateway.HandlingFields
)

// policy is the content of the extensions. Zero values are absent.
type policy struct {
	limit       ratelimit.Config
	concurrency ratelimit.Concurrency
	auth        gateway.Auth
	cost        cost.Rules
	free        bool // an empty list of costs is given: the cost of the path item does not count
	unbounded   bool // {} is given for the concurrency: that of the path item does not count

	upstream   string    // by name, also for gateway.DefaultUpstream
	upstreamAt Reference // where it is named
	split      gateway.Split
	splitAt    *SplitReference // nil without a split

	handling *gateway.Handling
}

// or returns p with its absent fields taken from otherwise.
func (p policy) or(otherwise policy) policy {
	if p.limit.IsZero() {
		p.limit = otherwise.limit
	}
	if p.concurrency.IsZero() && !p.unbounded {
		p.concurrency, p.unbounded = otherwise.concurrency, otherwise.unbounded
	}
	if p.auth == "" {
		p.auth = otherwise.auth
	}
	if len(p.cost) == 0 && !p.free {
		p.cost, p.free = otherwise.cost, otherwise.free
	}
	if p.upstream == "" {
		p.upstream, p.upstreamAt = otherwise.upstream, otherwise.upstreamAt
	}
	if p.split == nil {
		p.split, p.splitAt = otherwise.split, otherwise.splitAt
	}
	for _, field := range gateway.HandlingFields() {
		if p.handling.Value(field) == nil && otherwise.handling.Value(field) != nil {
			p.handling = p.handling.With(field, otherwise.handling)
		}
	}
	return p
}

func (p policy) authOrKey() gateway.Auth {
	if p.auth == "" {
		return gateway.AuthKey
	}
	return p.auth
}

// differs returns the extension in which p and o differ, or "". An absent limit means that callers
// are not limited, and an absent auth that a key is required, so both are compared with these
// meanings; an absent cost is none, and so is an absent bound of requests in flight.
func (p policy) differs(o policy) (extension string) {
	switch {
	case p.limit != o.limit:
		return limitExtension
	case p.authOrKey() != o.authOrKey():
		return authExtension
	case !p.cost.Equal(o.cost):
		return costExtension
	case p.concurrency != o.concurrency:
		return concurrencyExtension
	case gateway.StoredUpstreamName(p.upstream) != gateway.StoredUpstreamName(o.upstream):
		return upstreamExtension
	case !p.split.Equal(o.split):
		return splitExtension
	}
	if fields := p.handling.Differs(o.handling); len(fields) > 0 {
		return handlingExtension(fields[0])
	}
	return ""
}

// handlingExtension returns the extension of a field of gateway.HandlingFields.
func handlingExtension(field string) string {
	return extensionPrefix + strings.ReplaceAll(field, "_", "-")
}

// handlingField returns the field of gateway.HandlingFields of an extension, or "".
func handlingField(extension string) string {
	for _, field := range gateway.HandlingFields() {
		if handlingExtension(field) == extension {
			return field
		}
	}
	return ""
}

// extensionNames returns the names of the extensions for a message.
func extensionNames() string {
	names := []string{limitExtension, authExtension, costExtension, concurrencyExtension, upstreamExtension, splitExtension}
	for _, field := range gateway.HandlingFields() {
		names = append(names, handlingExtension(field))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// isKeygate reports whether a name is, or is meant to be, one of the extensions.
func isKeygate(name string) bool {
	return strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "x-keygate")
}

// readPolicy reads the extensions from the layers of a path item, or from an operation. ok is false
// if an extension is invalid. An unknown extension is invalid too: it is probably a typo that would
// leave a route without its limit.
func (r *reader) readPolicy(field string, layers ...*document.Node) (all policy, ok bool) {
	ok = true
	for _, layer := range layers {
		var p policy
		for i := range layer.Nodes {
			m := &layer.Nodes[i]
			if !isKeygate(m.Name) {
				continue
			}
			var err error
			switch at := field + "." + m.Name; m.Name {
			case limitExtension:
				p.limit, err = readLimit(m, at)
			case authExtension:
				p.auth, err = readAuth(m, at)
			case costExtension:
				p.cost, err = r.readCost(m, at)
				p.free = m.Kind == document.Sequence && len(m.Nodes) == 0
			case concurrencyExtension:
				p.unbounded = m.Kind == document.Mapping && len(m.Nodes) == 0
				if !p.unbounded {
					p.concurrency, err = readConcurrency(m, at)
				}
			case upstreamExtension:
				if p.upstream, err = readUpstream(m, at); p.upstream != "" {
					p.upstreamAt = Reference{Field: at, Position: m.Position}
				}
			case splitExtension:
				if p.split, err = readSplit(m, at); len(p.split) > 0 {
					p.splitAt = &SplitReference{Field: at, Upstreams: gateway.SplitPositions(m)}
				}
			default:
				if known := handlingField(m.Name); known != "" {
					p.handling, err = readHandling(p.handling, known, m, at)
					break
				}
				err = m.NamePosition.Invalid(at, "is not an extension of Keygate: use %s", extensionNames())
			}
			r.problems.Add(err)
			ok = ok && err == nil
		}
		all = all.or(p)
	}
	return all, ok
}

func readAuth(n *document.Node, field string) (gateway.Auth, error) {
	if err := refuseEnv(n.Position, field, n.Text); err != nil {
		return "", err
	}
	return gateway.ReadAuth(n, field)
}

// readUpstream reads the name of an upstream, also that of the default one; "" for null.
func readUpstream(n *document.Node, field string) (string, error) {
	if err := refuseEnv(n.Position, field, n.Text); err != nil {
		return "", err
	}
	name, err := gateway.ReadUpstreamName(n, field)
	if name == "" && err == nil && n.Kind == document.String {
		name = gateway.DefaultUpstream
	}
	return name, err
}

// readSplit reads the split of a route; nil for null.
func readSplit(n *document.Node, field string) (gateway.Split, error) {
	var variables document.Problems
	refuseVariables(n, field, &variables)
	if err := variables.Err(); err != nil {
		return nil, err
	}
	return gateway.ReadSplit(n, field)
}

// readHandling returns h with a field of gateway.HandlingFields from a document.
func readHandling(h *gateway.Handling, name string, n *document.Node, field string) (*gateway.Handling, error) {
	var variables document.Problems
	refuseVariables(n, field, &variables)
	if err := variables.Err(); err != nil {
		return h, err
	}
	var read gateway.Handling
	_, err := gateway.ReadHandling(&read, name, n, field)
	if read.Value(name) == nil {
		return h, err
	}
	return h.With(name, &read), err
}

func readLimit(n *document.Node, field string) (ratelimit.Config, error) {
	if err := refuseVariablesOf(n, field); err != nil {
		return ratelimit.Config{}, err
	}
	return gateway.ReadLimit(n, field)
}

func readConcurrency(n *document.Node, field string) (ratelimit.Concurrency, error) {
	if err := refuseVariablesOf(n, field); err != nil {
		return ratelimit.Concurrency{}, err
	}
	return gateway.ReadConcurrency(n, field)
}

// refuseVariablesOf is refuseEnv for the values of a mapping.
func refuseVariablesOf(n *document.Node, field string) error {
	var variables document.Problems
	for i := range n.Nodes {
		m := &n.Nodes[i]
		variables.Add(refuseEnv(m.Position, field+"."+m.Name, m.Text))
	}
	return variables.Err()
}

func (r *reader) readCost(n *document.Node, field string) (cost.Rules, error) {
	rules, err := r.costs.Read(n) // which accepts no value with a variable
	if err == nil {
		return rules, nil
	}
	var variables document.Problems
	refuseVariables(n, field, &variables)
	return nil, cmp.Or(variables.Err(), document.WithPosition(err, n, field))
}

// refuseVariables is refuseEnv for n and everything in it.
func refuseVariables(n *document.Node, field string, problems *document.Problems) {
	problems.Add(refuseEnv(n.Position, field, n.Text))
	for i := 0; i < len(n.Nodes) && !problems.Full(); i++ {
		at := fmt.Sprintf("%s[%d]", field, i)
		if n.Kind == document.Mapping {
			at = field + "." + n.Nodes[i].Name
		}
		refuseVariables(&n.Nodes[i], at, problems)
	}
}
