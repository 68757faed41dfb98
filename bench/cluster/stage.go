//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/process"
	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// nodes is the number of nodes of the cluster.
const nodes = 3

// overLimit is the rate limit of a key that gets more requests than it admits.
const overLimit = "2000/s"

// stage holds the stores, the service, a server alone and a cluster. All of them run all the time, so that
// their background work disturbs both sides of a comparison.
type stage struct {
	o        options
	dir      string
	postgres *postgrestest.Server
	redis    *process.Process
	limits   string // address of Redis
	origin   *process.Process
	alone    *server
	cluster  []*server
	delay    *delayer // between the last node and the database
}

// server is a running Keygate with a gateway in front of the origin.
type server struct {
	*keygate.Server
	dir  string
	key  string // with a limit that it does not reach
	over string // with the limit overLimit
}

func openStage(ctx context.Context, o options) (_ *stage, err error) {
	st := &stage{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.dir, err = os.MkdirTemp("", "keygate-bench-cluster-"); err != nil {
		return nil, err
	}
	addresses, err := keygate.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	origin := addresses[0]
	st.limits = addresses[1]
	if err := st.openOrigin(ctx, origin); err != nil {
		return nil, err
	}
	if err := st.openRedis(ctx); err != nil {
		return nil, err
	}
	if st.alone, err = st.open(ctx, "alone", keygate.Config{}); err != nil {
		return nil, err
	}
	if err := st.alone.configure(ctx, origin); err != nil {
		return nil, err
	}
	if err := st.openCluster(ctx); err != nil {
		return nil, err
	}
	if err := st.cluster[0].configure(ctx, origin); err != nil {
		return nil, err
	}
	for _, n := range st.cluster[1:] {
		n.key, n.over = st.cluster[0].key, st.cluster[0].over
	}
	return st, nil
}

// openOrigin starts the service: one worker of nginx with a constant response of 381 bytes.
func (st *stage) openOrigin(ctx context.Context, address string) (err error) {
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	path := filepath.Join(st.dir, "origin.conf")
	text := fmt.Sprintf(`%s daemon off; worker_processes 1; error_log stderr error; pid %s/origin.pid;
events { worker_connections 4096; }
http {
    access_log off; keepalive_requests 1000000000; keepalive_timeout 10m; default_type application/json;
    client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
    uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
    server { listen %[3]s backlog=4096; location / { return 200 '%0381d'; } }
}
`, user, st.dir, address, 0)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if st.origin, err = process.Start(process.Config{Path: "/usr/sbin/nginx", Args: []string{"-c", path, "-e", "stderr"}, Dir: st.dir}); err != nil {
		return fmt.Errorf("start the service (Debian: apt-get install nginx wrk): %w", err)
	}
	return st.origin.Await(ctx, func(ctx context.Context) error { return dial(ctx, address) })
}

// openRedis starts the limit store.
func (st *stage) openRedis(ctx context.Context) (err error) {
	_, port, err := net.SplitHostPort(st.limits)
	if err != nil {
		return err
	}
	st.redis, err = process.Start(process.Config{
		Path: "redis-server", Args: []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, Dir: st.dir,
	})
	if err != nil {
		return fmt.Errorf("start the limit store (Debian: apt-get install redis-server): %w", err)
	}
	return st.redis.Await(ctx, func(ctx context.Context) error { return dial(ctx, st.limits) })
}

// dial returns nil if a server listens at the address.
func dial(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// openCluster starts the database, which writes to the disk as it does in production, and the nodes.
func (st *stage) openCluster(ctx context.Context) (err error) {
	if st.postgres, err = postgrestest.Open(postgrestest.Config{Durable: true}); err != nil {
		return err
	}
	url, err := st.postgres.Create(ctx, "keygate")
	if err != nil {
		return err
	}
	secret := filepath.Join(st.dir, "secret.key")
	text := make([]byte, 32)
	_, _ = rand.Read(text)
	if err := os.WriteFile(secret, text, 0o600); err != nil {
		return err
	}
	if st.delay, err = openDelayer(ctx, st.postgres.Addr); err != nil {
		return err
	}
	key := ""
	for i := range nodes {
		name, database := fmt.Sprintf("node-%d", i+1), url
		if i == nodes-1 {
			database = strings.Replace(url, st.postgres.Addr, st.delay.listener.Addr().String(), 1)
		}
		n, err := st.open(ctx, name, keygate.Config{
			Args: []string{"--node-name", name, "--secret-key-file", secret, "--redis-url", "redis://" + st.limits, "--lease-ttl", st.o.leaseTTL.String()},
			Env:  []string{"KEYGATE_DATABASE_URL=" + database},
			Key:  key,
		})
		if err != nil {
			return err
		}
		key = n.AdminKey()
		st.cluster = append(st.cluster, n)
	}
	return nil
}

// open starts a server in a directory of its own.
func (st *stage) open(ctx context.Context, name string, cfg keygate.Config) (*server, error) {
	s := &server{dir: filepath.Join(st.dir, name)}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	cfg.Binary, cfg.Dir = st.o.binary, s.dir
	cfg.Args = append(cfg.Args, "--access-log", filepath.Join(s.dir, "access.log"), "--pprof")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	s.Server, err = keygate.Start(ctx, cfg)
	return s, err
}

// configure creates the gateway, a route with limits, and the keys.
func (s *server) configure(ctx context.Context, origin string) error {
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "bench", UpstreamURL: "http://" + origin})
	if err != nil {
		return err
	}
	rate, daily := "1000000/s", "1000000000/day"
	if _, err := s.Admin.CreateRoute(ctx, g.GatewayID, client.CreateRouteRequest{
		Path: "/json/{id}", Methods: []string{"GET"}, RateLimit: &client.RateLimitInput{Sustained: &rate, Burst: &rate, Daily: &daily},
	}); err != nil {
		return err
	}
	for secret, limit := range map[*string]string{&s.key: "100000/s", &s.over: overLimit} {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: "caller", Scope: "read", RateLimit: &client.KeyRateLimit{Rate: limit}})
		if err != nil {
			return err
		}
		*secret = k.Secret
	}
	return nil
}

// close stops everything, the stores last.
func (st *stage) close() error {
	if st.alone != nil && st.alone.Server != nil {
		st.alone.Stop()
	}
	for _, n := range st.cluster {
		n.Stop()
	}
	for _, p := range []*process.Process{st.origin, st.redis} {
		if p != nil {
			p.Stop()
		}
	}
	if st.delay != nil {
		st.delay.close()
	}
	var err error
	if st.postgres != nil {
		err = st.postgres.Close()
	}
	if st.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(st.dir))
}
