//go:build linux

// Package keygate runs the built binary as its users do, for benchmarks of the
// whole process.
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

// Config is what is run.
type Config struct {
	Binary string
	Dir    string   // holds the data directory and the output
	Args   []string // of serve, beside the data directory and the addresses
}

// Server is a server that is ready.
type Server struct {
	*process.Process

	// Admin calls the management API with the key of the first start.
	Admin *client.Client
	// Gateway is the host and port of the data plane.
	Gateway string
	// Startup is the time from the start of the process to the first 200 of
	// /readyz.
	Startup time.Duration
	// StartupCPU is the processor time that the process used until then.
	StartupCPU time.Duration

	admin string
	ops   string
}

// As returns a client that calls the management API with another key.
func (s *Server) As(key string) (*client.Client, error) {
	return client.New(client.Config{URL: s.admin, Key: key, Retries: -1})
}

// DataDir returns the data directory of a server that runs in dir.
func DataDir(dir string) string { return filepath.Join(dir, "data") }

// Database returns the database of a server that runs in dir.
func Database(dir string) string { return filepath.Join(DataDir(dir), "keygate.db") }

// Start starts a server and waits until it is ready. Whoever gets it stops it.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	addresses, err := FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	s := &Server{Gateway: addresses[0], admin: "http://" + addresses[1], ops: "http://" + addresses[2]}
	begun := time.Now()
	s.Process, err = process.Start(process.Config{
		Path: cfg.Binary,
		Dir:  cfg.Dir,
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
	if err := s.Await(ctx, func(ctx context.Context) error {
		_, err := s.get(ctx, "/readyz")
		return err
	}); err != nil {
		return nil, err
	}
	s.Startup = time.Since(begun)
	if s.StartupCPU, err = s.CPU(); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(DataDir(cfg.Dir), "admin.key"))
	if err != nil {
		return nil, err
	}
	s.Admin, err = s.As(strings.TrimSpace(string(key)))
	return s, err
}

// Metrics returns what /metrics shows.
func (s *Server) Metrics(ctx context.Context) ([]byte, error) { return s.get(ctx, "/metrics") }

// get returns the body of an answer of the operators' address.
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

// The ports that are tried: those below which Linux takes the ports of clients
// from, so that no connection takes one before its server does.
const firstPort, ports = 20_000, 12_000

// FreeAddresses returns n addresses of the loopback whose ports are free now.
func FreeAddresses(n int) ([]string, error) {
	var all []string
	for range 100 * n {
		if len(all) == n {
			return all, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // somebody has it
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return nil, fmt.Errorf("found no %d free ports from %d to %d", n, firstPort, firstPort+ports-1)
}
