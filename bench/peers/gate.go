//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/client"
)

// startKeygate starts the binary with its default settings on a store that has
// one gateway, its routes and keys.
func startKeygate(ctx context.Context, st *stage, how how) (*proxy, error) {
	if st.gates[how.origin] == "" {
		if err := st.prepareGate(ctx, how.origin); err != nil {
			return nil, fmt.Errorf("prepare keygate: %w", err)
		}
	}
	var args []string
	if how.secure {
		args = append(args, "--tls-cert", st.pair.certificate, "--tls-key", st.pair.privateKey)
	}
	if how.collect {
		args = append(args, "--pprof")
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: st.o.binary, Dir: st.gates[how.origin], Args: args})
	if err != nil {
		return nil, err
	}
	p := &proxy{Process: s.Process, address: s.Gateway, secure: how.secure, key: st.secret[how.origin]}
	if how.collect {
		p.collect = s.Collect
	}
	return p, nil
}

// prepareGate makes a store with a gateway in front of origin.
func (st *stage) prepareGate(ctx context.Context, origin string) error {
	dir, err := os.MkdirTemp(st.dir, "keygate-")
	if err != nil {
		return err
	}
	s, err := keygate.Start(ctx, keygate.Config{Binary: st.o.binary, Dir: dir})
	if err != nil {
		return err
	}
	defer s.Stop()
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "bench", UpstreamURL: "http://" + origin})
	if err != nil {
		return err
	}
	path, err := st.write("keygate.yaml", map[string]any{
		"Origin": origin, "Paths": []string{smallPath + "{id}", jsonPath + "{id}", largePath + "{id}", bulkPath + "{id}"},
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
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: fmt.Sprintf("caller %d", i), Scope: "write", RateLimit: &limit})
		if err != nil {
			return err
		}
		if i == callers/2 {
			st.secret[origin] = k.Secret
		}
	}
	st.gates[origin] = dir
	return nil
}
