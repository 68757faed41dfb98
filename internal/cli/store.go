package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

func newStore(a *app) *cobra.Command {
	return newGroup("store", "Move the store to another engine", newStoreCopy(a))
}

type storeCopy struct {
	storeCommand
	from, to string
}

func newStoreCopy(a *app) *cobra.Command {
	o := &storeCopy{storeCommand: storeCommand{app: a}}
	c := &cobra.Command{
		Use:   "copy --from DIR --to URL",
		Short: "Copy the store of a data directory to an empty PostgreSQL database",
		Long: `Copy everything that a server has in its data directory to a PostgreSQL database, which
several servers can share. Stop the server before. The database must be empty and for
Keygate alone, and the secret key must be that of the server.

The copy is one transaction: until its end the database stays empty, and a command that
was interrupted can be repeated, and starts over. At the end the numbers of rows of all
tables and the heads of the audit chains are compared. Then the data directory is marked
as moved, so that "keygate serve" refuses it without --database-url.

--to is better set by KEYGATE_DATABASE_URL, since other users see the flags of a process.
Progress is shown on standard error.`,
		Example: "  keygate store copy --from /var/lib/keygate --to postgres://keygate@db.example/keygate",
		Args:    noArgs, RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "data `directory` of the server that was stopped")
	f.StringVar(&o.to, "to", "", "`url` of the empty PostgreSQL database (default KEYGATE_DATABASE_URL)")
	o.loader = config.Register(f)
	return c
}

func (o *storeCopy) run(c *cobra.Command, _ []string) error {
	if err := required("from", o.from); err != nil {
		return err
	}
	if c.Flags().Changed("to") {
		if err := c.Flags().Set("database-url", o.to); err != nil {
			return usagef("--to: %s", err)
		}
	}
	if err := c.Flags().Set("data-dir", o.from); err != nil {
		return usagef("--from: %s", err)
	}
	settings, log, err := o.load()
	if err != nil {
		return err
	}
	if !settings.Shared() {
		return required("to", "")
	}
	p := progress{app: o.app, now: time.Now}
	done, err := server.CopyStore(c.Context(), settings, o.version, log, p.show)
	if err != nil {
		return err
	}
	return o.PrintRecord(done, func() []terminal.Field {
		if done.Finished {
			return []terminal.Field{{"RESULT", "an earlier command had copied everything"}, {"MOVED FROM", done.From}, {"MOVED TO", done.To}}
		}
		return []terminal.Field{
			{"RESULT", "everything was copied and compared"}, {"MOVED FROM", done.From}, {"MOVED TO", done.To},
			{"TABLES", strconv.FormatInt(done.Tables, 10)}, {"ROWS", strconv.FormatInt(done.Rows, 10)}, {"AUDIT CHAINS", strconv.FormatInt(done.Chains, 10)},
		}
	})
}

// progress shows how far a copy has come.
type progress struct {
	*app
	now  func() time.Time
	last time.Time
}

// show prints a line when the copy of a table with rows begins, and every second until it ends.
func (p *progress) show(table string, done, of int64) {
	now := p.now()
	if of == 0 || done == of || done > 0 && now.Sub(p.last) < time.Second {
		return
	}
	p.last = now
	fmt.Fprintf(p.Err, "copying %s: %d of %d rows\n", table, done, of)
}
