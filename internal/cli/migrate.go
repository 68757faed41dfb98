package cli

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
	"github.com/keygate/keygate/internal/telemetry"
)

func newMigrate(a *app) *cobra.Command {
	c := newGroup("migrate", "Migrate the schema of a PostgreSQL database", newMigrateUp(a), newMigrateStatus(a))
	c.Long = `Migrate the schema of the PostgreSQL database of --database-url. A server does that when it
starts, unless it has --migrate=off. Servers of the version before may go on running meanwhile.
Whether they can start again afterwards depends on the migration; a start that is refused names
the version that is needed.`
	return c
}

func newMigrateUp(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "Migrate the schema to the one of this version", Args: noArgs,
		Example: "  keygate migrate up --database-url postgres://keygate@db.example/keygate",
	}
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, _ []string) error {
		if err := server.MigrateDatabase(ctx, settings, a.version, telemetry.NewLogger(a.Err, settings.LogLevel, settings.LogFormat)); err != nil {
			return err
		}
		return a.printSchema(ctx, settings)
	})
}

func newMigrateStatus(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the schema of the database and the one of this version", Args: noArgs,
		Example: "  keygate migrate status --database-url postgres://keygate@db.example/keygate",
	}
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, _ []string) error {
		return a.printSchema(ctx, settings)
	})
}

// schema is what migrate prints.
type schema struct {
	Current int64 `json:"current"` // of the database; 0 if it is empty
	Newest  int64 `json:"newest"`  // of this version
}

func (a *app) printSchema(ctx context.Context, settings *config.Config) error {
	current, newest, err := server.SchemaVersion(ctx, settings)
	if err != nil {
		return err
	}
	return a.PrintRecord(schema{current, newest}, func() []terminal.Field {
		return []terminal.Field{{"SCHEMA OF THE DATABASE", strconv.FormatInt(current, 10)}, {"SCHEMA OF THIS VERSION", strconv.FormatInt(newest, 10)}}
	})
}
