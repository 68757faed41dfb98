package server

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// openStore opens the database and the box that seals secrets in it.
func openStore(ctx context.Context, settings *config.Config, log *slog.Logger) (*sqlite.DB, *secret.Box, error) {
	box, err := secret.LoadOrCreate(settings.SecretKeyFile)
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: settings.DatabaseFile(), Log: log})
	if err != nil {
		return nil, nil, err
	}
	return db, box, nil
}

// newControl returns the operations over a store.
func newControl(settings *config.Config, db *sqlite.DB, box *secret.Box, p control.Publisher, log *slog.Logger) (*control.Service, error) {
	return control.New(control.Config{
		Store: db, Publisher: p, Sealer: box, Now: time.Now, Random: rand.Reader,
		GatewayDomain: settings.GatewayDomain, Log: log,
	})
}
