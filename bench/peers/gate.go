//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/client"
)

// startKeygate starts the binary with its default settings, on a store with one
// gateway, its routes and keys.
func startKeygate(ctx context.Context, st *stage, m mode) (*proxy, error) {
	if st.gatewayDirs[m.origin] == "" {
		if err := st.prepareGateway(ctx, m); err != nil {
			return nil, fmt.Errorf("prepare keygate: %w", err)
		}
	}
	var args []string
	if m.secure {
		args = append(args, "--tls-cert", st.pair.certificate, "--tls-key", st.pair.privateKey)
	}
	if m.collect {
		args = append(args, "--pprof")
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: st.o.binary, Dir: st.gatewayDirs[m.origin], Args: args})
	if err != nil {
		return nil, err
	}
	p := &proxy{Process: s.Process, address: s.Gateway, secure: m.secure, key: st.gatewayKeys[m.origin]}
	if m.collect {
		p.collect = s.Collect
	}
	return p, nil
}

// prepareGateway creates a store with a gateway in front of an origin.
func (st *stage) prepareGateway(ctx context.Context, m mode) error {
	origin, scheme := m.origin, "http"
	if m.grpc {
		scheme = "h2c"
	}
	dir, err := os.MkdirTemp(st.dir, "keygate-")
	if err != nil {
		return err
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: st.o.binary, Dir: dir})
	if err != nil {
		return err
	}
	defer s.Stop()
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "bench", UpstreamURL: scheme + "://" + origin})
	if err != nil {
		return err
	}
	path, err := st.write("keygate.yaml", map[string]any{
		"Scheme": scheme, "Origin": origin, "Paths": []string{smallPath + "{id}", jsonPath + "{id}", largePath + "{id}", bulkPath + "{id}", callPath},
	})
	if err != nil {
		return err
	}
	settings, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := s.Admin.PushConfig(ctx, g.GatewayID, settings, false); err != nil {
		return err
	}
	limit := "1000000/s"
	for i := range callers {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: fmt.Sprintf("caller %d", i), Scope: "write", RateLimit: &client.KeyRateLimit{Rate: limit}})
		if err != nil {
			return err
		}
		if i == callers/2 {
			st.gatewayKeys[origin] = k.Secret
		}
	}
	st.gatewayDirs[origin] = dir
	return nil
}
