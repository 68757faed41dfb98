package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/config"
)

// listeners are the three listeners of a server. All are bound before any serves.
type listeners struct {
	gateway, admin, ops net.Listener
}

// listen binds all three listeners, or none.
func listen(ctx context.Context, settings *config.Config) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, one := range []struct {
		to            *net.Listener
		setting, addr string
	}{
		{&l.gateway, "gateway-addr", settings.GatewayAddr},
		{&l.admin, "admin-addr", settings.AdminAddr},
		{&l.ops, "ops-addr", settings.OpsAddr},
	} {
		var lc net.ListenConfig
		taken := func(err error) bool { return errors.Is(err, unix.EADDRINUSE) }
		if err = retryWhile(ctx, taken, func() (err error) {
			*one.to, err = lc.Listen(ctx, "tcp", one.addr)
			return err
		}); err != nil {
			if taken(err) {
				return l, fmt.Errorf("address %s is in use by another program: stop it, or set another --%s", one.addr, one.setting)
			}
			return l, fmt.Errorf("listen on --%s: %w", one.setting, err)
		}
	}
	return l, nil
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.gateway, l.admin, l.ops} {
		if one != nil {
			_ = one.Close() // an error means that it is already closed
		}
	}
}

// addresses returns the addresses of the listeners, which upstreams must not have.
func (l *listeners) addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, one := range []net.Listener{l.gateway, l.admin, l.ops} {
		if addr, ok := one.Addr().(*net.TCPAddr); ok {
			out = append(out, addr.AddrPort())
		}
	}
	return out
}
