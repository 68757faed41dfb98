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

// The names of two peers that others are not: ours, and the one that all are
// compared with.
const (
	keygateName = "keygate"
	reference   = "nginx"
)

// peer is a proxy that is compared.
type peer struct {
	name   string
	checks bool // keys, and limits
	start  func(ctx context.Context, st *stage, how how) (*proxy, error)
}

// how is in which way a proxy runs.
type how struct {
	origin  string // host:port of what stands behind it
	secure  bool   // answer over TLS
	collect bool   // be able to collect garbage when told
}

// proxy is a proxy that runs.
type proxy struct {
	*process.Process
	address string // host:port
	secure  bool
	key     string // "" if it checks none
	// collect makes it collect its garbage, if it has any.
	collect func(context.Context) (keygate.Heap, error)
}

// URL returns the address of path.
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

// open starts the peer and sees that it does its work: that it forwards, and,
// if it checks keys, refuses a request without one and sets its three fields.
func (p *peer) open(ctx context.Context, st *stage, how how) (_ *proxy, err error) {
	if how.origin == "" {
		how.origin = st.plain
	}
	running, err := p.start(ctx, st, how)
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
	if how.origin != st.plain {
		return running, nil
	}
	return running, check(ctx, st.pair.client, base, running.key, p.checks)
}

// reach returns nil if anything answers.
func reach(ctx context.Context, c *http.Client, url string) error {
	_, err := get(ctx, c, url, "")
	return err
}

// check returns nil if the three answers are there.
func check(ctx context.Context, c *http.Client, base, key string, checks bool) error {
	for path, length := range map[string]int{smallPath: smallBytes, jsonPath: jsonBytes, largePath: largeBytes} {
		res, err := get(ctx, c, base+path+"1", key)
		if err != nil {
			return err
		}
		if res.status != http.StatusOK || res.body != answer(length) {
			return fmt.Errorf("%s: status %d, %d bytes; want 200 and the %d bytes of the origin", path, res.status, len(res.body), length)
		}
		if !checks {
			continue
		}
		for _, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if res.header.Get(field) == "" {
				return fmt.Errorf("%s: the answer lacks %s", path, field)
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

type received struct {
	status int
	header http.Header
	body   string
}

func get(ctx context.Context, c *http.Client, url, key string) (received, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return received{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.Do(req)
	if err != nil {
		return received{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return received{res.StatusCode, res.Header, string(body)}, err
}

// blanks are those of the other proxies' files.
type blanks struct {
	Root                          bool
	Files, Clients                uint64
	Dir, Origin, Plain, Secure    string
	Certificate, PrivateKey, Pair string
	Keys                          []string
}

// startOther starts a proxy that has one file of settings and listens at two
// addresses.
func startOther(st *stage, how how, program, file string, args func(path string) []string, env ...string) (*proxy, error) {
	addresses, err := keygate.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	path, err := st.write(file, blanks{
		Root: os.Getuid() == 0, Files: st.files, Clients: st.files - st.files/4, Dir: st.dir, Origin: how.origin, Plain: addresses[0], Secure: addresses[1],
		Certificate: st.pair.certificate, PrivateKey: st.pair.privateKey, Pair: st.pair.both, Keys: st.keys,
	})
	if err != nil {
		return nil, err
	}
	if program, err = find(program); err != nil {
		return nil, err
	}
	p := &proxy{address: addresses[0], secure: how.secure, key: st.keys[callers/2]}
	if how.secure {
		p.address = addresses[1]
	}
	p.Process, err = process.Start(process.Config{Path: program, Args: args(path), Env: env, Dir: st.dir})
	return p, err
}

func startNginx(_ context.Context, st *stage, how how) (*proxy, error) {
	return startOther(st, how, "nginx", "nginx.conf", func(path string) []string { return []string{"-c", path, "-e", "stderr"} })
}

func startHAProxy(_ context.Context, st *stage, how how) (*proxy, error) {
	return startOther(st, how, "haproxy", "haproxy.cfg", func(path string) []string { return []string{"-db", "-f", path} })
}

func startCaddy(_ context.Context, st *stage, how how) (*proxy, error) {
	return startOther(st, how, "caddy", "Caddyfile", func(path string) []string {
		return []string{"run", "--adapter", "caddyfile", "--config", path}
	}, "HOME="+st.dir, "XDG_DATA_HOME="+st.dir, "XDG_CONFIG_HOME="+st.dir)
}
