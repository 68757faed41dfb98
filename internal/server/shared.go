package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/postgres"
)

// canary is the text that the first node seals and stores, so that a node with another secret key notices the
// difference.
const canary = "keygate"

// openShared opens a PostgreSQL database, and the box for the secret key that all its nodes have.
func openShared(ctx context.Context, settings *config.Config, version string, log *slog.Logger) (_ *postgres.DB, _ *secret.Box, err error) {
	box, err := sharedBox(settings)
	if err != nil {
		return nil, nil, err
	}
	db, err := openPostgres(ctx, settings, version, log)
	if err != nil {
		return nil, nil, err
	}
	if err := checkCanary(ctx, db, box); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, box, nil
}

func openPostgres(ctx context.Context, settings *config.Config, version string, log *slog.Logger) (*postgres.DB, error) {
	// Open reports whether the database can be reached at all.
	if way, err := postgres.CheckPooler(ctx, string(settings.DatabaseURL)); err != nil && way.Pooled {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Config{URL: string(settings.DatabaseURL), KeepSchema: settings.Migrate == "off", LeaseTTL: settings.LeaseTTL, Version: version, Log: log})
}

// sharedBox returns the box for the given key or for the key in the file. It never creates a key:
// with different keys, nodes could not decrypt each other's values.
func sharedBox(settings *config.Config) (*secret.Box, error) {
	if settings.SecretKey != "" {
		return secret.New([]byte(settings.SecretKey))
	}
	box, err := secret.Load(settings.SecretKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the secret key file %s does not exist, and with a database URL none is created, because all nodes need the same one: "+
			"make one with head -c 32 /dev/urandom > secret.key && chmod 600 secret.key, and give it to every node with --secret-key-file; "+
			"or set %s to the output of head -c 32 /dev/urandom | base64", settings.SecretKeyFile, config.SecretKeyVariable)
	}
	return box, err
}

// checkCanary returns an error if the database was first used with another secret key.
func checkCanary(ctx context.Context, db *postgres.DB, box *secret.Box) error {
	sealed, err := box.Seal([]byte(canary))
	if err != nil {
		return err
	}
	i, err := db.Installation(ctx, postgres.Installation{ID: rand.Text(), Canary: sealed})
	if err != nil {
		return fmt.Errorf("compare the secret key with the one of the database: %w", err)
	}
	return opensCanary(box, i.Canary)
}

// opensCanary returns an error if the canary of a database was sealed with another secret key.
func opensCanary(box *secret.Box, sealed []byte) error {
	if text, err := box.Open(sealed); err != nil || string(text) != canary {
		return fmt.Errorf("the secret key is not the one that the database was created with: set --secret-key-file or %s to that of the other nodes", config.SecretKeyVariable)
	}
	return nil
}

// MigrateDatabase migrates the schema of the PostgreSQL database. version is the version of this binary.
func MigrateDatabase(ctx context.Context, settings *config.Config, version string, log *slog.Logger) error {
	if err := needShared(settings); err != nil {
		return err
	}
	return postgres.Migrate(ctx, string(settings.DatabaseURL), version, log)
}

// SchemaVersion returns the version of the schema of the PostgreSQL database, and the newest one that
// this binary knows.
func SchemaVersion(ctx context.Context, settings *config.Config) (current, newest int64, err error) {
	if err := needShared(settings); err != nil {
		return 0, 0, err
	}
	v, err := postgres.SchemaVersion(ctx, string(settings.DatabaseURL))
	return v.Current, v.Newest, err
}

func needShared(settings *config.Config) error {
	if !settings.Shared() {
		return errors.New("there is no PostgreSQL database: set --database-url; a SQLite database is migrated when it is opened")
	}
	return nil
}
