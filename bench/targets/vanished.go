//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/keygate"
)

// The addresses of both ends of a pair of interfaces, this machine's and that of the namespace.
const near, far = "10.213.77.1", "10.213.77.2"

// vanished measures requests while the host of one target vanishes: the target runs in a network namespace, whose interface
// goes down. Without root it measures nothing.
func vanished(ctx context.Context, o options, dir string) (rows []row, err error) {
	const delay = 5 * time.Millisecond
	const about = "a host that vanished, 1,000/s"
	if os.Getuid() != 0 {
		return []row{only(about, "not measured: needs root, for a network namespace")}, nil
	}
	n, err := openNamespace(ctx)
	defer func() { err = errors.Join(err, n.remove()) }()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return []row{only(about, "not measured: "+err.Error())}, nil
	}
	unused, err := keygate.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(unused[0])
	if err != nil {
		return nil, err
	}
	victim := &target{delay: delay, address: net.JoinHostPort(far, port), namespace: n.name}
	st, err := openStage(ctx, o, dir, victim, &target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	defer st.close()
	l := st.load(warmUp + o.kill)
	l.rate = steady
	var out time.Duration
	got, err := st.during(ctx, l, warmUp, func() error {
		if err := ip(ctx, "-n", n.name, "link", "set", n.peer, "down"); err != nil {
			return err
		}
		start := time.Now()
		for time.Since(start) < o.kill {
			text, err := st.server.Metrics(ctx)
			if err != nil {
				return err
			}
			if metric(text, "keygate_target_ejections_total", victim.label()) > 0 {
				out = time.Since(start)
				return nil
			}
			if err := wait(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(0)
	rows = []row{
		none(about+": failed GETs", failed, all),
		{"the same: out after, s", "never", "≤ 6.00", yes(false)},
		only("the same: slowest GET, s", fmt.Sprintf("%.2f", got.quantile(1).Seconds())),
	}
	if out > 0 {
		rows[1] = atMost("the same: out after, s", "%.2f", out.Seconds(), 6)
	}
	return rows, nil
}

// namespace is a network namespace with a pair of interfaces, one of which is in it.
type namespace struct{ name, link, peer string }

// openNamespace creates a namespace. The caller must remove it, also after an error.
func openNamespace(ctx context.Context) (*namespace, error) {
	id := os.Getpid()
	n := &namespace{name: fmt.Sprintf("keygate-bench-%d", id), link: fmt.Sprintf("kgb%d", id), peer: fmt.Sprintf("kgp%d", id)}
	for _, args := range [][]string{
		{"netns", "add", n.name},
		{"link", "add", n.link, "type", "veth", "peer", "name", n.peer, "netns", n.name},
		{"address", "add", near + "/30", "dev", n.link},
		{"link", "set", n.link, "up"},
		{"-n", n.name, "address", "add", far + "/30", "dev", n.peer},
		{"-n", n.name, "link", "set", n.peer, "up"},
	} {
		if err := ip(ctx, args...); err != nil {
			return n, err
		}
	}
	return n, nil
}

// remove removes the namespace and its interfaces, as far as they are there.
func (n *namespace) remove() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the benchmark's context may have ended
	defer cancel()
	if _, missing := net.InterfaceByName(n.link); missing == nil {
		err = ip(ctx, "link", "delete", n.link)
	}
	if _, missing := os.Stat("/run/netns/" + n.name); missing == nil {
		err = errors.Join(err, ip(ctx, "netns", "delete", n.name))
	}
	return err
}

// ip runs a command of iproute2.
func ip(ctx context.Context, args ...string) error {
	text, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput() //nolint:gosec // the arguments are this file's
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}
