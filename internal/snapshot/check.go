package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
)

// Check is how the targets of an upstream are checked (targets.md, section 3): by a request of Path, by a call of Service, or, with
// neither, by a connection alone. It is immutable. balance.Check.Use is a *Check.
type Check struct {
	Path    string  // with its query; "" for another kind
	Service *string // of grpc.health.v1; nil for another kind

	Interval, Timeout  time.Duration
	Unhealthy, Healthy int
	Statuses           []gateway.StatusRange // of Path
	Headers            []Header              // opened, sorted by name

	Host       string // the Host that the target gets; "" for that of the target
	ServerName string // as in Target, as the following are
	CA         string
	Client     unique.Handle[[2]string]
	PublicOnly bool
}

// IsGood reports whether a response with the status to a request of Path is good.
func (c *Check) IsGood(status int) bool {
	return slices.ContainsFunc(c.Statuses, func(r gateway.StatusRange) bool { return r.First <= status && status <= r.Last })
}

// compileCheck returns the checks of an upstream, of whose targets t is one; nil without checks.
func (f *Follower) compileCheck(u *gateway.Upstream, t *Target) (*Check, error) {
	h := u.Health
	if h == nil {
		return nil, nil
	}
	c := &Check{
		Path: h.Path, Service: h.GRPC, Unhealthy: h.Unhealthy, Healthy: h.Healthy,
		ServerName: t.ServerName, CA: t.CA, Client: t.Client,
	}
	if u.Host != gateway.PreserveHost {
		c.Host = u.Host
	}
	var err error
	if c.Interval, err = time.ParseDuration(h.Interval); err != nil {
		return nil, fmt.Errorf("read health.interval: %w", err)
	}
	if c.Timeout, err = time.ParseDuration(h.Timeout); err != nil {
		return nil, fmt.Errorf("read health.timeout: %w", err)
	}
	if h.Path != "" {
		if c.Statuses, err = gateway.ParseStatuses(h.Statuses); err != nil {
			return nil, fmt.Errorf("read health.statuses: %w", err)
		}
	}
	if c.Headers, err = f.openHeaders(h.Sealed); err != nil {
		return nil, err
	}
	return c, nil
}

// openHeaders opens sealed headers, and sorts them by name.
func (f *Follower) openHeaders(sealed map[string][]byte) (list []Header, err error) {
	for name, content := range sealed {
		value, err := f.open(content)
		if err != nil {
			return nil, fmt.Errorf("decrypt header %s: %w", name, err)
		}
		list = append(list, Header{name, value})
	}
	slices.SortFunc(list, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// id returns c as package balance knows it, for targets that may be only at public addresses if publicOnly is set. Checks are equal
// if everything that they depend on is, apart from the address. c may be nil.
func (c *Check) id(publicOnly bool) balance.Check {
	if c == nil {
		return balance.Check{}
	}
	use := *c
	use.PublicOnly = publicOnly
	pair := [2]string{}
	if c.Client != (unique.Handle[[2]string]{}) {
		pair = c.Client.Value()
	}
	content, err := json.Marshal(struct {
		Check
		Client [2]string // which is unexported in a Handle
	}{use, pair})
	if err != nil { // it has no value that cannot be encoded
		panic(err)
	}
	sum := sha256.Sum256(content)
	return balance.Check{ID: hex.EncodeToString(sum[:16]), Unhealthy: c.Unhealthy, Healthy: c.Healthy, Use: &use}
}
