//go:build linux

// Package keygate runs the built binary for benchmarks of the whole process.
package keygate

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/process"
	"github.com/keygate/keygate/client"
)

// callTimeout limits each call of the management API: a large push on a busy machine takes
// more than the client's 60 seconds.
const callTimeout = 10 * time.Minute

// Config describes a server to start.
type Config struct {
	Binary string
	Dir    string   // contains the data directory and the output
	Args   []string // further flags of serve
	Env    []string // added to this process's environment

	// Key is the account-level key of a database that is not in Dir. "" means the key that the first start
	// wrote to its data directory.
	Key string
}

// Server is a running server that is ready.
type Server struct {
	*process.Process

	// Admin is a client of the management API with the key of the first start.
	Admin *client.Client
	// Gateway is the host and port of the data plane.
	Gateway string
	// Startup is the time from the start of the process until /readyz returned 200.
	Startup time.Duration
	// StartupCPU is the CPU time that the process used until then.
	StartupCPU time.Duration

	admin string
	key   string
	ops   string
}

// AdminURL returns the URL of the management API, without a slash at the end.
func (s *Server) AdminURL() string { return s.admin }

// AdminKey returns the account-level key of the first start, which has the scope admin.
func (s *Server) AdminKey() string { return s.key }

// As returns a client of the management API with another key.
func (s *Server) As(key string) (*client.Client, error) {
	return client.New(client.Config{URL: s.admin, Key: key, Timeout: callTimeout, Retries: -1})
}

// Through returns a client of the management API with another key, whose calls go through a transport.
func (s *Server) Through(t http.RoundTripper, key string) (*client.Client, error) {
	return client.New(client.Config{URL: s.admin, Key: key, Timeout: callTimeout, Retries: -1, HTTPClient: &http.Client{Transport: t}})
}

// DataDir returns the data directory of a server that runs in dir.
func DataDir(dir string) string { return filepath.Join(dir, "data") }

// Database returns the database of a server that runs in dir.
func Database(dir string) string { return filepath.Join(DataDir(dir), "keygate.db") }

// Start starts a server and waits until it is ready. The caller must stop it.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	addresses, err := FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	s := &Server{Gateway: addresses[0], admin: "http://" + addresses[1], ops: "http://" + addresses[2]}
	start := time.Now()
	s.Process, err = process.Start(process.Config{
		Path: cfg.Binary,
		Dir:  cfg.Dir,
		Env:  cfg.Env,
		Args: append([]string{"serve", "--data-dir", DataDir(cfg.Dir),
			"--gateway-addr", addresses[0], "--admin-addr", addresses[1], "--ops-addr", addresses[2]}, cfg.Args...),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if err := s.Await(ctx, s.Ready); err != nil {
		return nil, err
	}
	s.Startup = time.Since(start)
	if s.StartupCPU, err = s.CPU(); err != nil {
		return nil, err
	}
	if s.key = cfg.Key; s.key == "" {
		key, err := os.ReadFile(filepath.Join(DataDir(cfg.Dir), "admin.key"))
		if err != nil {
			return nil, err
		}
		s.key = strings.TrimSpace(string(key))
	}
	s.Admin, err = s.As(s.key)
	return s, err
}

// Ready returns nil if /readyz returns 200.
func (s *Server) Ready(ctx context.Context) error {
	_, err := s.get(ctx, "/readyz")
	return err
}

// Metrics returns the body of /metrics.
func (s *Server) Metrics(ctx context.Context) ([]byte, error) { return s.get(ctx, "/metrics") }

// CPUProfile returns a CPU profile of the next seconds. The server needs the flag --pprof.
func (s *Server) CPUProfile(ctx context.Context, seconds int) ([]byte, error) {
	return s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
}

// get returns the body of a response of the operators' address.
func (s *Server) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ops+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: status %d", path, res.StatusCode)
	}
	return body, err
}

// The ports to try. They are below the range from which Linux assigns ports to client
// connections, so that no connection takes one before the server does.
const firstPort, ports = 20_000, 12_000

// FreeAddresses returns n loopback addresses whose ports are free at the moment.
func FreeAddresses(n int) ([]string, error) {
	var all []string
	for range 100 * n {
		if len(all) == n {
			return all, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // the port is in use
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return nil, fmt.Errorf("could not find %d free ports from %d to %d", n, firstPort, firstPort+ports-1)
}
