package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/validation"
	"github.com/keygate/keygate/internal/webhook"
)

// openStore opens the database and the box that encrypts secrets in it. It creates a
// secret key only together with a new database: with an existing one, a new key could
// decrypt nothing, and would be in the way when the old key is restored. beforeWrite is
// sqlite.Config.BeforeWrite.
func openStore(ctx context.Context, settings *config.Config, version string, log *slog.Logger, beforeWrite func() error) (store.Engine, *secret.Box, error) {
	if settings.Shared() {
		return openShared(ctx, settings, version, log)
	}
	if err := refuseMoved(settings.DataDir); err != nil {
		return nil, nil, err
	}
	old, err := hasDatabase(settings)
	if err != nil {
		return nil, nil, err
	}
	box, err := openBox(settings, old)
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(ctx, sqlite.Config{
		Path: settings.DatabaseFile(), Log: log, BackupBeforeMigrate: settings.BackupBeforeMigrate, Version: version, BeforeWrite: beforeWrite,
	})
	if err != nil {
		return nil, nil, err
	}
	return db, box, nil
}

// storeRetry is the time between two attempts to open a store that cannot be reached.
const storeRetry = time.Second

// awaitStore opens the store. While its database cannot be reached, it tries again until ctx ends, and
// /readyz and the log say so: a machine may start before the database does, and a server that ended would have
// to be started again. Any other error, such as a wrong password, is returned.
func (s *Server) awaitStore(ctx context.Context) (store.Engine, *secret.Box, error) {
	for tries := 0; ; tries++ {
		db, box, err := openStore(ctx, s.cfg.Settings, s.cfg.Version, s.log, nil)
		if err == nil || ctx.Err() != nil || !postgres.IsAway(err) {
			s.readiness.SetStarting("")
			return db, box, err
		}
		if tries%60 == 0 {
			s.log.Warn("waiting for the database, without which this server cannot start", "error", err)
		}
		s.readiness.SetStarting("waiting for the database: " + fault.MessageOf(err))
		if !service.Wait(ctx, storeRetry) {
			return nil, nil, errors.Join(ctx.Err(), err)
		}
	}
}

// openBox returns the box for the key in the environment, or else in the secret key file. old says
// that there is a database; the key must then be the one with which it was created.
func openBox(settings *config.Config, old bool) (*secret.Box, error) {
	given := settings.SecretKey != ""
	hasFile, err := exists(settings.SecretKeyFile)
	if err != nil {
		return nil, err
	}
	if old && !hasFile && !given {
		return nil, fmt.Errorf(
			"the secret key file %s does not exist, but the database %s was created with a secret key: restore the file from a backup, or set --secret-key-file or the environment variable %s",
			settings.SecretKeyFile, settings.DatabaseFile(), config.SecretKeyVariable)
	}
	var box *secret.Box
	if given {
		box, err = secret.Given([]byte(settings.SecretKey), settings.SecretKeyFile)
	} else {
		box, err = secret.LoadOrCreate(settings.SecretKeyFile)
	}
	if err == nil {
		err = checkFingerprint(settings, box, given)
	}
	if errors.Is(err, secret.ErrOtherKey) {
		err = fmt.Errorf("%w; stored secrets could not be read with it: set %s to the key that the database was created with, or unset it and use the file", err, config.SecretKeyVariable)
	}
	return box, err
}

// checkFingerprint returns an error if the database was last used with another key. A given key
// leaves its fingerprint, because there may be no file to compare it with.
func checkFingerprint(settings *config.Config, box *secret.Box, given bool) error {
	path := settings.FingerprintFile()
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("read the fingerprint of the secret key: %s is not a regular file", path)
	}
	stored, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !given {
			return nil
		}
		if err := writeFileAtomically(path, []byte(box.Fingerprint()+"\n")); err != nil {
			return fmt.Errorf("write the fingerprint of the secret key: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the fingerprint of the secret key: %w", err)
	case strings.TrimSpace(string(stored)) == box.Fingerprint():
		return nil
	case given:
		return fmt.Errorf("%w: %s is of another one", secret.ErrOtherKey, path)
	default:
		return fmt.Errorf("%s does not hold the secret key that this installation uses: %s is of another one; restore the file from a backup, or set %s",
			settings.SecretKeyFile, path, config.SecretKeyVariable)
	}
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
	now       func() time.Time            // nil means time.Now
	wake      func()                      // called when deliveries may be due
	full      func(accountID string) bool // control.Config.EventsFull
	audit     control.Syncer
	sources   control.Sources
	heavy     chan struct{} // control.Config.Heavy

	everywhere control.Everywhere
	quotas     control.Quotas
	targets    control.Targets
	validation control.ValidationReporter
	documents  *validation.Documents

	repositories control.RepositorySyncer
	issuers      control.IssuerFetcher
}

// newControl returns the management operations over a store.
func newControl(settings *config.Config, db store.Engine, box *secret.Box, around dependencies, log *slog.Logger) (*control.Service, error) {
	if around.now == nil {
		around.now = time.Now
	}
	return control.New(control.Config{
		Store: db, Publisher: around.publisher, Sealer: box, Now: around.now, Random: rand.Reader,
		GatewayDomain: settings.GatewayDomain, DefaultGlobalLimit: settings.DefaultGlobalLimit, Log: log,
		WebhookURLs: webhook.URLRule{AllowHTTP: settings.WebhookAllowHTTP, Allow: settings.WebhookAllowNetwork},
		Wake:        around.wake, EventsFull: around.full, AuditSync: around.audit, Sources: around.sources, Heavy: around.heavy,
		Repositories: around.repositories, Issuers: around.issuers, SignIn: signInPolicy(&settings.SSO), Everywhere: around.everywhere, Quotas: around.quotas, Targets: around.targets,
		ACME: settings.ACME.On(), Validation: around.validation, Documents: around.documents,
		Bounds: control.AccountBounds{ConfigurationBytes: settings.AccountConfigMaxBytes},
	})
}
