//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/process"
)

// The names of Keygate and of the peer that all are compared with.
const (
	keygateName = "keygate"
	reference   = "nginx"
)

// peer is a proxy to compare.
type peer struct {
	name   string
	checks bool // checks keys and limits
	start  func(ctx context.Context, st *stage, m mode) (*proxy, error)
}

// mode says how to run a proxy.
type mode struct {
	origin  string // host:port of the upstream; "" is the origin of constant responses
	secure  bool   // use the TLS listener
	grpc    bool   // the upstream speaks gRPC, over cleartext HTTP/2
	collect bool   // allow the benchmark to trigger a garbage collection
}

// proxy is a running proxy.
type proxy struct {
	*process.Process
	address string // host:port
	secure  bool
	key     string // valid key; "" if the proxy does not check keys
	// collect triggers a garbage collection; nil if the proxy has none.
	collect func(context.Context) (keygate.Heap, error)
}

// URL returns the URL of path on the proxy.
func (p *proxy) URL(path string) string {
	if p.secure {
		return "https://" + p.address + path
	}
	return "http://" + p.address + path
}

func peers() []peer {
	return []peer{
		{keygateName, true, startKeygate},
		{reference, true, startNginx},
		{"haproxy", true, startHAProxy},
		{"caddy", false, startCaddy},
	}
}

func peerNames() (names []string) {
	for _, p := range peers() {
		names = append(names, p.name)
	}
	return names
}

// open starts the peer and checks that it works: that it forwards requests and, if it
// checks keys, that it refuses a request without one and sets the three headers.
func (p *peer) open(ctx context.Context, st *stage, m mode) (_ *proxy, err error) {
	switch {
	case m.grpc:
		if m.origin, err = st.calls.open(); err != nil {
			return nil, err
		}
	case m.origin == "":
		m.origin = st.plain
	}
	running, err := p.start(ctx, st, m)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			running.Stop()
		}
	}()
	base := running.URL("")
	if err := running.Await(ctx, func(ctx context.Context) error {
		return reach(ctx, st.pair.client, base)
	}); err != nil {
		return nil, err
	}
	switch m.origin {
	case st.calls.address:
		return running, st.calls.check(ctx, st.pair.roots, base, running.key, p.checks)
	case st.plain:
	default:
		return running, nil
	}
	return running, check(ctx, st.pair.client, base, running.key, p.checks)
}

// reach returns nil if the URL gets any response.
func reach(ctx context.Context, c *http.Client, url string) error {
	_, err := get(ctx, c, url, "")
	return err
}

// check requests the three resources and returns an error if a response is wrong.
func check(ctx context.Context, c *http.Client, base, key string, checks bool) error {
	for path, length := range map[string]int{smallPath: smallBytes, jsonPath: jsonBytes, largePath: largeBytes} {
		res, err := get(ctx, c, base+path+"1", key)
		if err != nil {
			return err
		}
		if res.status != http.StatusOK || res.body != jsonText(length) {
			return fmt.Errorf("%s: status %d, %d bytes; want 200 and the %d bytes of the origin", path, res.status, len(res.body), length)
		}
		if !checks {
			continue
		}
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if res.header.Get(name) == "" {
				return fmt.Errorf("%s: the response has no header %s", path, name)
			}
		}
		if res, err = get(ctx, c, base+path+"1", ""); err != nil {
			return err
		}
		if res.status != http.StatusUnauthorized {
			return fmt.Errorf("%s without a key: status %d; want 401", path, res.status)
		}
	}
	return nil
}

type response struct {
	status int
	header http.Header
	body   string
}

func get(ctx context.Context, c *http.Client, url, key string) (response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return response{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.Do(req)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return response{res.StatusCode, res.Header, string(body)}, err
}

// templateData fills in the configuration files of the other proxies.
type templateData struct {
	Root, GRPC                    bool
	Files, Clients                uint64
	Dir, Origin, Plain, Secure    string
	Certificate, PrivateKey, Pair string
	Keys                          []string
}

// startOther starts a proxy that has one configuration file and listens on two
// addresses, one of them with TLS.
func startOther(st *stage, m mode, program, file string, args func(path string) []string, env ...string) (*proxy, error) {
	addresses, err := keygate.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	path, err := st.write(file, templateData{
		Root: os.Getuid() == 0, GRPC: m.grpc, Files: st.files, Clients: st.files - st.files/4, Dir: st.dir, Origin: m.origin, Plain: addresses[0], Secure: addresses[1],
		Certificate: st.pair.certificate, PrivateKey: st.pair.privateKey, Pair: st.pair.both, Keys: st.keys,
	})
	if err != nil {
		return nil, err
	}
	if program, err = find(program); err != nil {
		return nil, err
	}
	p := &proxy{address: addresses[0], secure: m.secure, key: st.keys[callers/2]}
	if m.secure {
		p.address = addresses[1]
	}
	p.Process, err = process.Start(process.Config{Path: program, Args: args(path), Env: env, Dir: st.dir})
	return p, err
}

func startNginx(_ context.Context, st *stage, m mode) (*proxy, error) {
	return startOther(st, m, "nginx", "nginx.conf", func(path string) []string { return []string{"-c", path, "-e", "stderr"} })
}

func startHAProxy(_ context.Context, st *stage, m mode) (*proxy, error) {
	return startOther(st, m, "haproxy", "haproxy.cfg", func(path string) []string { return []string{"-db", "-f", path} })
}

func startCaddy(_ context.Context, st *stage, m mode) (*proxy, error) {
	return startOther(st, m, "caddy", "Caddyfile", func(path string) []string {
		return []string{"run", "--adapter", "caddyfile", "--config", path}
	}, "HOME="+st.dir, "XDG_DATA_HOME="+st.dir, "XDG_CONFIG_HOME="+st.dir)
}
