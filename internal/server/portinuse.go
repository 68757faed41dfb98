package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/config"
)

// takenAddress is the address of a setting that another program listens on.
type takenAddress struct{ setting, addr string }

// inUse returns the error of a start whose addresses are taken. It says which settings to change,
// with free addresses as
// examples, each on a line.
func inUse(ctx context.Context, taken []takenAddress) error {
	var addrs []string
	var examples strings.Builder
	command := ""
	suggested := map[string]bool{}
	for _, t := range taken {
		addrs = append(addrs, t.addr)
		free := freeAddress(ctx, t.addr, suggested)
		suggested[free] = true
		fmt.Fprintf(&examples, "\n--%s %s or %s=%s", t.setting, free, config.Variable(t.setting), free)
		if t.setting == "admin-addr" {
			command = "\nCommands then need --url or KEYGATE_URL with that address."
		}
	}
	subject := "address " + addrs[0] + " is"
	if len(addrs) > 1 {
		subject = "addresses " + strings.Join(addrs, ", ") + " are"
	}
	return fmt.Errorf("%s in use by another program, perhaps another Keygate: stop it, or set other addresses, such as%s%s", subject, &examples, command)
}

// freeAddress returns an address like addr that can be listened on now and is not in except: with a
// port that is above the port of addr by a multiple of 10, else with any port.
func freeAddress(ctx context.Context, addr string, except map[string]bool) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	n, err := strconv.Atoi(port)
	for step := 10; err == nil && step <= 100 && n+step <= 65535; step += 10 {
		candidate := net.JoinHostPort(host, strconv.Itoa(n+step))
		if !except[candidate] && portOf(ctx, candidate) != "" {
			return candidate
		}
	}
	return net.JoinHostPort(host, portOf(ctx, net.JoinHostPort(host, "0")))
}

// portOf listens on addr for a moment and returns the port, or "" if that is not possible.
func portOf(ctx context.Context, addr string) string {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String()) // a listener's address always has a port
	return port
}
