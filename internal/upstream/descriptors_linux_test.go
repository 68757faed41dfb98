package upstream_test

import (
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/upstream"
)

// useUpDescriptors leaves this process no file descriptor until release is called.
func useUpDescriptors(t *testing.T) (release func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lowest, err := unix.Dup(0) // all below it are in use
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lowest)
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: uint64(lowest), Max: before.Max})
	return func() { set(before) }
}

// Guarantee: contract 4.2, 8. If this process has no file descriptor left for a connection,
// the error is a 503 with a reason of its own, in both kinds of pool, with and without a
// limit of connections: the upstream is not the cause.
func TestNoDescriptors(t *testing.T) {
	pools := newPools(t, upstream.Config{Guard: netguard.New()})
	for name, maxConns := range map[string]int{"no limit": 0, "limit": 1} {
		t.Run(name, func(t *testing.T) {
			o := upstream.Origin{Scheme: "http", Host: "127.0.0.1:9", MaxConns: maxConns, Target: name}
			plain, err := pools.Plain(o)
			if err != nil {
				t.Fatal(err)
			}
			o.Scheme = "h2c"
			var errs [2]error
			for range 100 { // a connection of another test may still be closing, which frees a descriptor
				release := useUpDescriptors(t)
				_, errs[0] = plain.Acquire(t.Context(), time.Time{}, nil)
				_, errs[1] = upstream.Start(t.Context(), pools, o, request(http.MethodGet, "http://127.0.0.1:9", "/"), time.Minute)
				release()
				if upstream.ReasonOf(errs[0]) == accesslog.NoDescriptors && upstream.ReasonOf(errs[1]) == accesslog.NoDescriptors {
					break
				}
			}
			for _, err := range errs {
				if fault.CodeOf(err) != fault.Unavailable || upstream.ReasonOf(err) != accesslog.NoDescriptors {
					t.Errorf("got error %v, want fault.Unavailable with the reason no_descriptors", err)
				}
			}
		})
	}
}
