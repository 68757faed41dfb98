package snapshot

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/gateway"
)

// Maintenance is what a gateway responds with that is under maintenance. It is immutable.
type Maintenance struct {
	Message string
	allow   *addrlist.List // nil for nobody
}

// Exempts reports whether a client is served nevertheless. It is for nobody if m is nil, which means no maintenance.
func (m *Maintenance) Exempts(client netip.Addr) bool {
	return m.allow != nil && m.allow.Allows(client)
}

// compileAddresses sets the addresses that may use the gateway, and its maintenance.
func (g *Settings) compileAddresses(r *gateway.Requests) (err error) {
	if g.Addresses, err = addrlist.Compile(r.Addresses()); err != nil {
		return fmt.Errorf("compile gateway %s: %w", g.ID, err)
	}
	if m := r.Maintenance; m != nil {
		g.Maintenance = &Maintenance{Message: cmp.Or(m.Message, gateway.DefaultMaintenance)}
		if g.Maintenance.allow, err = addrlist.Compile(addrlist.Lists{Allow: m.Allow}); err != nil {
			return fmt.Errorf("compile gateway %s: maintenance: %w", g.ID, err)
		}
	}
	return nil
}

// AllowsAddress reports whether the lists of the caller's key allow a client's address. To nobody, every address is
// allowed.
func (c *Caller) AllowsAddress(client netip.Addr) bool {
	return c == nil || c.rights.addresses.Allows(client)
}
