package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/webhook"
)

// openStore opens the database and the box that seals secrets in it. The key of
// the box is made with a new database alone: beside an old one a new key would
// open nothing, and stand where the right one must be restored.
func openStore(ctx context.Context, settings *config.Config, log *slog.Logger) (*sqlite.DB, *secret.Box, error) {
	old, err := exists(settings.DatabaseFile())
	if err != nil {
		return nil, nil, err
	}
	if hasKey, err := exists(settings.SecretKeyFile); err != nil || old && !hasKey {
		return nil, nil, errors.Join(err, fmt.Errorf(
			"there is no secret key file %s, but the database %s was made with one: restore the file from a backup, or name it with --secret-key-file",
			settings.SecretKeyFile, settings.DatabaseFile()))
	}
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

// surroundings are what operations have around them beside the store. Those of
// an offline command are a Publisher alone.
type surroundings struct {
	publisher control.Publisher
	wake      func()                 // called when deliveries may wait
	recall    func(webhookID string) // called when an endpoint was changed or deleted
	audit     control.Syncer
	sources   control.Sources
}

// newControl returns the operations over a store.
func newControl(settings *config.Config, db *sqlite.DB, box *secret.Box, around surroundings, log *slog.Logger) (*control.Service, error) {
	return control.New(control.Config{
		Store: db, Publisher: around.publisher, Sealer: box, Now: time.Now, Random: rand.Reader,
		GatewayDomain: settings.GatewayDomain, Log: log,
		WebhookURLs: webhook.URLRule{AllowHTTP: settings.WebhookAllowHTTP, Allow: settings.WebhookAllowNetwork},
		Wake:        around.wake, Recall: around.recall, AuditSync: around.audit, Sources: around.sources,
	})
}
