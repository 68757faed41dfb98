package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// healthTimeout bounds CheckReady.
const healthTimeout = 5 * time.Second

// CheckReady asks /readyz of the server that runs on this machine with these settings. It returns nil if the
// server is ready, and else why it is not.
func CheckReady(ctx context.Context, settings *config.Config) error {
	addr := settings.OpsAddr
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return err
	case port == "0":
		return fmt.Errorf("--ops-addr is %s, whose port the system chose: set a port", addr)
	case host == "":
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, clientURL(false, addr)+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true} // no proxy: the server is on this machine
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", req.URL, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close() // only read from
	if err != nil {
		return fmt.Errorf("ask %s: %w", req.URL, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s is %d: %s", req.URL, resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// SQLiteVersion is the version of the SQLite that is built in.
const SQLiteVersion = sqlite.LibraryVersion
