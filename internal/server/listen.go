package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/keygate/keygate/internal/config"
)

// listeners are the listeners of a server. gateway or admin is nil if the server's role does not
// include it, and acme without --acme-http-addr. All are bound before any serves.
type listeners struct {
	gateway, admin, ops, acme net.Listener
}

// SocketNames returns the names of Config.Sockets.
func SocketNames() []string { return []string{"gateway", "admin", "ops"} }

// listen binds all listeners of the node's role, or none, and takes over the listeners in sockets. If
// addresses are in use, the error names all of them.
func listen(ctx context.Context, settings *config.Config, sockets map[string]net.Listener) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
			for _, socket := range sockets {
				_ = socket.Close() // an error means that it is already closed
			}
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, takeoverTimeout) // for all together
	defer cancel()
	var occupied []takenAddress
	for _, one := range []struct {
		to                  *net.Listener
		name, setting, addr string
		serves              bool
	}{
		{&l.gateway, "gateway", "gateway-addr", settings.GatewayAddr, settings.ServesGateway()},
		{&l.admin, "admin", "admin-addr", settings.AdminAddr, settings.ServesAdmin()},
		{&l.ops, "ops", "ops-addr", settings.OpsAddr, true},
		{&l.acme, "acme", "acme-http-addr", settings.ACME.HTTPAddr, settings.ServesGateway() && settings.ACME.HTTPAddr != ""},
	} {
		socket := sockets[one.name]
		if !one.serves {
			if socket != nil {
				return l, fmt.Errorf("systemd has passed the socket %s, which --role=%s does not serve: remove it from the socket unit", one.name, settings.Role)
			}
			continue
		}
		if socket != nil {
			*one.to = socket
			continue
		}
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // such a socket takes no filter, and without a filter a stop resets new connections (package edge)
		taken := func(err error) bool { return errors.Is(err, errAddressInUse) }
		if err = retryWhile(waiting, taken, func() (err error) {
			*one.to, err = lc.Listen(ctx, "tcp", one.addr)
			return err
		}); err != nil {
			if taken(err) {
				occupied = append(occupied, takenAddress{one.setting, one.addr})
				continue
			}
			return l, fmt.Errorf("listen on --%s: %w", one.setting, err)
		}
	}
	if len(occupied) > 0 {
		return l, inUse(ctx, occupied)
	}
	return l, nil
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.gateway, l.admin, l.ops, l.acme} {
		if one != nil {
			_ = one.Close() // an error means that it is already closed
		}
	}
}

// addresses returns the addresses of the listeners, to which no upstream may lead.
func (l *listeners) addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, one := range []net.Listener{l.gateway, l.admin, l.ops, l.acme} {
		if one == nil {
			continue
		}
		if addr, ok := one.Addr().(*net.TCPAddr); ok {
			out = append(out, addr.AddrPort())
		}
	}
	return out
}

// addrOf returns the address of a listener, or "" for nil.
func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}
