package netguard_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/netguard"
)

// Guarantee: docs/limits.md. However many addresses a name has, 32 are tried at most, with one name or with several together. The
// error says why, and that of the guard comes first.
func TestFewAddressesOfANameAreTried(t *testing.T) {
	const many = 3000
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	last := netip.MustParseAddr("127.0.0.1")
	names := map[string][]netip.Addr{}
	for i := range many {
		closed := netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) // nothing listens there
		names["closed.test."] = append(names["closed.test."], closed)
		names["private.test."] = append(names["private.test."], netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		if i < netguard.MaxAddresses-1 {
			names["last.test."] = append(names["last.test."], closed)
		}
	}
	names["last.test."] = append(names["last.test."], last)
	var tried atomic.Int64
	dialer := func(p netguard.Policy) *net.Dialer {
		control := netguard.New().Control(p)
		return &net.Dialer{
			Resolver: dnstest.Resolver(func(name string) []netip.Addr { return names[name+"."] }),
			ControlContext: func(ctx context.Context, network, address string, c syscall.RawConn) error {
				err := control(ctx, network, address, c)
				if !errors.Is(err, context.Canceled) {
					tried.Add(1)
				}
				return err
			},
		}
	}
	dial := func(ctx context.Context, name string, p netguard.Policy) error {
		conn, err := netguard.Dial(ctx, dialer(p), "tcp", net.JoinHostPort(name, port))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	want := func(what string, err error, is bool, addresses int64) {
		t.Helper()
		if !is || tried.Load() != addresses {
			t.Errorf("%s: got %v after %d addresses, want another result after %d", what, err, tried.Load(), addresses)
		}
		tried.Store(0)
	}
	err = dial(t.Context(), "closed.test", netguard.Policy{})
	want("nothing listens", err, errors.Is(err, syscall.EHOSTUNREACH), netguard.MaxAddresses)
	var refused *netguard.RefusedError
	err = dial(t.Context(), "private.test", netguard.Policy{PublicOnly: true})
	want("addresses that are not allowed", err, errors.As(err, &refused), netguard.MaxAddresses)
	err = dial(t.Context(), "last.test", netguard.Policy{})
	want("the last one listens", err, err == nil, netguard.MaxAddresses)

	ctx, cancel := netguard.Bounded(t.Context())
	defer cancel()
	err = dial(ctx, "closed.test", netguard.Policy{})
	want("the first name", err, errors.Is(err, syscall.EHOSTUNREACH), netguard.MaxAddresses)
	err = dial(ctx, "last.test", netguard.Policy{})
	want("the second one", err, err != nil && ctx.Err() != nil, 0)
	if err := dial(t.Context(), "127.0.0.1", netguard.Policy{}); err != nil {
		t.Errorf("an address: got %v, want no error", err)
	}
}
