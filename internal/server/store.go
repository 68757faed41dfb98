package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/webhook"
)

// openStore opens the database and the box that encrypts secrets in it. It creates a
// secret key only together with a new database: with an existing one, a new key could
// decrypt nothing, and would be in the way of the one to be restored.
func openStore(ctx context.Context, settings *config.Config, log *slog.Logger) (*sqlite.DB, *secret.Box, error) {
	old, err := hasDatabase(settings)
	if err != nil {
		return nil, nil, err
	}
	if hasKey, err := exists(settings.SecretKeyFile); err != nil || old && !hasKey {
		return nil, nil, errors.Join(err, fmt.Errorf(
			"the secret key file %s does not exist, but the database %s was created with one: restore the file from a backup, or set --secret-key-file",
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

// hasDatabase reports whether the database file exists and is not empty.
func hasDatabase(settings *config.Config) (bool, error) {
	info, err := os.Stat(settings.DatabaseFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// dependencies are what management operations use besides the store. Offline commands
// have only a publisher.
type dependencies struct {
	publisher control.Publisher
	wake      func()                 // called when deliveries may be due
	recall    func(webhookID string) // called when an endpoint has changed or was deleted
	audit     control.Syncer
	sources   control.Sources
}

// newControl returns the management operations over a store.
func newControl(settings *config.Config, db *sqlite.DB, box *secret.Box, around dependencies, log *slog.Logger) (*control.Service, error) {
	return control.New(control.Config{
		Store: db, Publisher: around.publisher, Sealer: box, Now: time.Now, Random: rand.Reader,
		GatewayDomain: settings.GatewayDomain, Log: log,
		WebhookURLs: webhook.URLRule{AllowHTTP: settings.WebhookAllowHTTP, Allow: settings.WebhookAllowNetwork},
		Wake:        around.wake, Recall: around.recall, AuditSync: around.audit, Sources: around.sources,
	})
}
