package cli

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

func newBackup(a *app) *cobra.Command {
	var options server.BackupOptions
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database of the data directory to a file",
		Long: `Copy the database of the data directory to a file, which "keygate restore" puts back. A
server may be running: requests and changes go on, and the copy has everything that was
answered before the command began. The copy is checked before it appears under its name.

The secret key is not in the copy. Keep it elsewhere, or let --with-secret-key write it to
FILE.secret.key. Whoever has both files can read the secrets of webhooks and upstreams.

With --database-url, use pg_dump or the point-in-time recovery of the database.`,
		Example: "  keygate backup --data-dir /var/lib/keygate /backup/keygate.db",
		Args:    atMost(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no file given: name the file to write, as in keygate backup keygate.backup")
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&options.SecretKey, "with-secret-key", false, "also copy the secret key, to FILE.secret.key")
	f.BoolVar(&options.Force, "force", false, "replace files that exist")
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, args []string) error {
		done, err := server.Backup(ctx, settings, args[0], options)
		if err != nil {
			return err
		}
		return a.PrintRecord(done, func() []terminal.Field {
			fields := []terminal.Field{{"FILE", done.File}, {"BYTES", strconv.FormatInt(done.Bytes, 10)}, {"SCHEMA", strconv.FormatInt(done.Schema, 10)}}
			return append(fields, filled(terminal.Field{"SECRET KEY", str(done.SecretKey)})...)
		})
	})
}

func newRestore(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup into an empty data directory",
		Long: `Put a file that "keygate backup" has made into a data directory, which must have no
database, and no server. The directory may have secret.key, and what a lost database has
left, such as admin.key. The secret key is taken from there, from --secret-key-file or
KEYGATE_SECRET_KEY, or else from FILE.secret.key if that exists. If the key is not the one
of the backup, nothing is restored.

Everything is as when the backup began: keys that were revoked since work again, until
they are revoked again.`,
		Example: "  keygate restore --data-dir /var/lib/keygate /backup/keygate.db",
		Args:    atMost(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no file given: name the backup to restore")
			}
			return nil
		},
	}
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, args []string) error {
		done, err := server.Restore(ctx, settings, args[0])
		if err != nil {
			return err
		}
		return a.printRestored(done)
	})
}

func (a *app) printRestored(done *server.StoreRestore) error {
	err := a.PrintRecord(done, func() []terminal.Field {
		return []terminal.Field{
			{"DATA DIRECTORY", done.DataDir}, {"BYTES", strconv.FormatInt(done.Bytes, 10)},
			{"SCHEMA", strconv.FormatInt(done.Schema, 10)}, {"SECRET KEY", done.SecretKey},
		}
	})
	if err == nil && done.SecretKey == server.KeyMissing {
		a.Say("The secret key is missing: put it back as %s, with mode 0600, before you start the server.", done.SecretKeyFile)
	}
	return err
}
