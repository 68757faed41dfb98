// Command dex is the identity provider Dex, for the tests of single sign-on. Dex's own command cannot be built with go build, as
// its module replaces a part of itself; this one starts the same server, with the fields of its configuration file that
// docs/single-sign-on.md uses:
//
//	dex serve FILE
//
// Everything is in memory. It ends with SIGTERM or SIGINT.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/connectors"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"go.yaml.in/yaml/v3"
)

// config is the part of Dex's configuration file that this command knows. Another field is an error.
type config struct {
	Issuer  string
	Storage struct{ Type string }
	Web     struct {
		HTTPS   string
		TLSCert string `yaml:"tlsCert"`
		TLSKey  string `yaml:"tlsKey"`
	}
	OAuth2 struct {
		SkipApprovalScreen bool `yaml:"skipApprovalScreen"`
	}
	EnablePasswordDB bool `yaml:"enablePasswordDB"`
	StaticClients    []struct {
		ID, Name, Secret string
		RedirectURIs     []string `yaml:"redirectURIs"`
	} `yaml:"staticClients"`
	StaticPasswords []struct {
		Email, Username, Hash string
		UserID                string `yaml:"userID"`
		Groups                []string
	} `yaml:"staticPasswords"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing left to do
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != "serve" {
		return errors.New("usage: dex serve FILE")
	}
	content, err := os.ReadFile(args[1]) //nolint:gosec // the operator names the file
	if err != nil {
		return err
	}
	var c config
	file := yaml.NewDecoder(bytes.NewReader(content))
	file.KnownFields(true)
	if err := file.Decode(&c); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	if c.Storage.Type != "memory" || !c.EnablePasswordDB {
		return errors.New("the storage must be memory, with enablePasswordDB: true")
	}
	handler, err := newServer(ctx, &c)
	if err != nil {
		return err
	}
	s := &http.Server{Addr: c.Web.HTTPS, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.ListenAndServeTLS(c.Web.TLSCert, c.Web.TLSKey); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newServer returns Dex, which stops with the context.
func newServer(ctx context.Context, c *config) (http.Handler, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var clients []storage.Client
	for _, s := range c.StaticClients {
		clients = append(clients, storage.Client{ID: s.ID, Name: s.Name, Secret: s.Secret, RedirectURIs: s.RedirectURIs})
	}
	var passwords []storage.Password
	for _, p := range c.StaticPasswords {
		passwords = append(passwords, storage.Password{
			Email: p.Email, Username: p.Username, Hash: []byte(p.Hash), UserID: cmp.Or(p.UserID, p.Email), Groups: p.Groups,
		})
	}
	s := storage.WithStaticPasswords(storage.WithStaticClients(memory.New(log), clients), passwords, log)
	s = storage.WithStaticConnectors(s, []storage.Connector{{ID: connectors.LocalConnector, Name: "Email", Type: connectors.LocalConnector}})
	const keysFor, tokensFor = "6h", 24 * time.Hour
	keys, err := (&signer.LocalConfig{KeysRotationPeriod: keysFor}).Open(ctx, s, tokensFor, time.Now, log)
	if err != nil {
		return nil, err
	}
	refresh, err := tokens.NewRefreshTokenPolicy(log, false, "", "", "")
	if err != nil {
		return nil, err
	}
	return server.NewServer(ctx, server.Config{
		Issuer: c.Issuer, Storage: s, Signer: keys, IDTokensValidFor: tokensFor, RefreshTokenPolicy: refresh,
		SkipApprovalScreen: c.OAuth2.SkipApprovalScreen, PasswordConnector: connectors.LocalConnector,
		Web: server.WebConfig{WebFS: web.FS()}, Logger: log,
	})
}
