//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/manykeys"
	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// The requests, and the keys created through the API, that give the lists of requests, events and
// deliveries something to show. The limit of the management API allows a burst of 200 calls.
const requests, changes = 3000, 120

func serverConfig(o options, dir string) keygate.Config {
	return keygate.Config{Binary: o.binary, Dir: dir, Args: []string{"--webhook-allow-network", "127.0.0.0/8"}}
}

// fillStore starts a server once, for its schema and its first key, and fills its store.
func fillStore(ctx context.Context, o options, dir string) (err error) {
	s, err := keygate.Start(ctx, serverConfig(o, dir))
	if err != nil {
		return err
	}
	s.Stop()
	if err := manykeys.Fill(ctx, keygate.Database(dir), o.keys); err != nil {
		return err
	}
	if err := manykeys.Index(ctx, keygate.Database(dir)); err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: keygate.Database(dir)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var a *account.Account
	if err := db.View(ctx, func(tx control.ReadTx) (err error) {
		a, err = tx.AccountByName(ctx, account.Default)
		return err
	}); err != nil {
		return err
	}
	blocks := (o.records + audit.MaxRecords - 1) / audit.MaxRecords
	start := time.Now().Add(-time.Duration(blocks+30) * sqlitetest.BlockSpan)
	_, err = sqlitetest.FillAuditLog(ctx, db, a.ID, start, blocks)
	return err
}

// fillServer gives a running server a gateway with routes, traffic, and webhooks of which one fails. The
// server that it returns is both the upstream and the receiver; the caller must close it.
func fillServer(ctx context.Context, o options, s *keygate.Server) (upstream *httptest.Server, gatewayID string, err error) {
	upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/failing" || r.URL.Path == "/resources-7/things" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "ok") // the client may be gone
	}))
	defer func() {
		if err != nil {
			upstream.Close()
		}
	}()
	for _, path := range []string{"/hook", "/failing"} {
		if _, err := s.Admin.CreateWebhook(ctx, client.CreateWebhookRequest{URL: upstream.URL + path, Events: []string{"key.created"}}); err != nil {
			return nil, "", err
		}
	}
	g, err := s.Admin.CreateGateway(ctx, client.CreateGatewayRequest{Name: "orders", UpstreamURL: upstream.URL})
	if err != nil {
		return nil, "", err
	}
	document, err := openAPI(o.routes)
	if err != nil {
		return nil, "", err
	}
	if _, err := s.Admin.PushSpec(ctx, g.GatewayID, document, false); err != nil {
		return nil, "", err
	}
	keys := make([]string, changes)
	for n := range keys {
		k, err := s.Admin.CreateKey(ctx, client.CreateKeyRequest{Name: fmt.Sprintf("partner %d", n), Scope: "read"})
		if err != nil {
			return nil, "", err
		}
		keys[n] = k.Secret
	}
	keys[0] = "kg_unknown"
	for n := range requests {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/resources-%d/things", s.Gateway, n%o.routes), http.NoBody)
		if err != nil {
			return nil, "", err
		}
		req.Host = g.Hostname
		req.Header.Set("Authorization", "Bearer "+keys[n%changes])
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, "", err
		}
		if err := errors.Join(drain(res.Body), res.Body.Close()); err != nil {
			return nil, "", err
		}
	}
	return upstream, g.GatewayID, nil
}

func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// openAPI returns a document with so many operations.
func openAPI(operations int) ([]byte, error) {
	type object = map[string]any
	paths := object{}
	for n := range operations {
		paths[fmt.Sprintf("/resources-%d/things", n)] = object{"get": object{
			"operationId": fmt.Sprintf("listThings%d", n), "responses": object{"200": object{"description": "The things."}},
		}}
	}
	return json.Marshal(object{"openapi": "3.1.0", "info": object{"title": "Orders", "version": "1"}, "paths": paths})
}
